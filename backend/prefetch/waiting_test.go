package prefetch_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/backend/prefetch"
)

// told is a store that notes by when it is asked to decide, and takes its time.
type told struct {
	backend.Store
	lasts time.Duration

	mu        sync.Mutex // guards the rest
	deadlines []time.Time
}

// Start implements backend.Starter.
func (s *told) Start(deadline time.Time, takes []backend.Take, dst []backend.Decision, then backend.Continuation) {
	s.mu.Lock()
	s.deadlines = append(s.deadlines, deadline)
	s.mu.Unlock()
	go func() {
		time.Sleep(s.lasts)
		backend.End(then, s.Take(nil, takes, dst)) //nolint:staticcheck // the memory store looks at no context
	}()
}

func (s *told) asked() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadlines
}

// hot is a key on a store that is slow by now, whose lease is used up.
func hot(t *testing.T, o prefetch.Options) (*prefetch.Store, *told, backend.Take) {
	t.Helper()
	inner := &told{Store: memstore.New(memstore.Options{})}
	s := prefetch.New(inner, o)
	b := &bench{T: t, store: s}
	call := charge("k", perSecond(100, 1000), 1)
	for range 5 {
		b.call(call)
		time.Sleep(time.Millisecond)
	}
	synctest.Wait()
	if s.Held() == 0 {
		t.Fatal("no lease")
	}
	big := call
	big.Hits = uint64(s.Held())
	b.call(big)
	synctest.Wait()
	inner.lasts = 10 * time.Millisecond
	inner.deadlines = nil
	return s, inner, call
}

// A call that comes while an ask is under way may have to wait for another one as well, and
// must not get the time of both.
func TestTheBudgetIsForAllThatACallWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget, twice = 6 * time.Millisecond, 11 * time.Millisecond
		s, inner, call := hot(t, prefetch.Options{Budget: budget})
		call.Hits = 300
		b := &bench{T: t, store: s}
		var calls sync.WaitGroup
		began := time.Now()
		calls.Go(func() { b.call(call) })
		synctest.Wait()
		time.Sleep(4 * time.Millisecond)
		came := time.Now()
		calls.Go(func() { b.call(call) })
		calls.Wait()
		got := inner.asked()
		if len(got) < 2 || !got[0].Equal(began.Add(twice)) || !got[1].Equal(came.Add(twice)) {
			t.Errorf("asked to decide by %v, want by %v and then by %v", got, began.Add(twice), came.Add(twice))
		}
	})
}

// Beyond the bound calls go to the store, which has a bound of its own.
func TestTheCallsThatWaitHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, inner, call := hot(t, prefetch.Options{MaxWaiting: 10})
		call.Hits = 100
		b := &bench{T: t, store: s}
		var calls sync.WaitGroup
		for range 30 {
			calls.Go(func() { b.call(call) })
		}
		synctest.Wait()
		if n := len(inner.asked()); n != 21 {
			t.Errorf("the store was asked %d times by 30 calls, want once for 10 and 20 times for the others", n)
		}
		calls.Wait()
	})
}
