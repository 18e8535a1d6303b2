package failover_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/failover"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/backend/storetest"
)

const ms = time.Millisecond

func TestSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (backend.Store, func(time.Duration)) {
		t.Helper()
		now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		var mu sync.Mutex
		inner := memstore.New(memstore.Options{Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}})
		s := failover.New(inner, failover.Options{Budget: time.Minute, Linger: time.Minute})
		t.Cleanup(s.Close)
		return s, func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(d)
		}
	})
}

// fault is a store that can be hung, slow or away. Its buckets are in memory.
type fault struct {
	backend.Store

	mu    sync.Mutex // guards the rest
	delay time.Duration
	err   error
	hang  chan struct{} // closed when it goes on
	asked int
}

func newFault() *fault { return &fault{Store: memstore.New(memstore.Options{})} }

func (f *fault) set(delay time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay, f.err = delay, err
}

// stop makes the store hang until the returned function is called; commands that came
// meanwhile are done then, as those of a process that was stopped are.
func (f *fault) stop() (resume func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hang := make(chan struct{})
	f.hang = hang
	return func() {
		f.mu.Lock()
		f.hang = nil
		f.mu.Unlock()
		close(hang)
	}
}

func (f *fault) calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fault) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	f.mu.Lock()
	delay, err, hang := f.delay, f.err, f.hang
	f.asked++
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	return f.Store.Take(context.WithoutCancel(ctx), takes, dst)
}

func (f *fault) probe(ctx context.Context, _ string) error {
	probe := []backend.Take{{Key: []byte("probe"), Limit: perSecond(1000, 1000), Hits: 1}}
	return f.Take(ctx, probe, make([]backend.Decision, 1))
}

func perSecond(requests, burst uint64) backend.Limit {
	return backend.Limit{Requests: requests, Period: time.Second, Burst: burst}
}

func perDay(n uint64) backend.Limit {
	return backend.Limit{Requests: n, Period: 24 * time.Hour, Burst: n}
}

// run starts a store over f in a bubble; it ends with the test.
func run(t *testing.T, f backend.Store, o failover.Options) *failover.Store {
	t.Helper()
	s := failover.New(f, o)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		s.Close()
	})
	return s
}

// one takes hits from a bucket and says what came of it.
func one(t *testing.T, s backend.Store, key string, limit backend.Limit, hits uint64) backend.Decision {
	t.Helper()
	var d [1]backend.Decision
	if err := s.Take(t.Context(), []backend.Take{{Key: []byte(key), Limit: limit, Hits: hits}}, d[:]); err != nil {
		t.Fatalf("Take: %v", err)
	}
	return d[0]
}

// observed is what Observe was told.
type observed struct {
	kind string
	took time.Duration
}

func TestTakeIsInTime(t *testing.T) {
	f := func(name string, budget, caller, want time.Duration) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hung := newFault()
				hung.stop()
				var got []observed
				s := run(t, hung, failover.Options{Budget: budget, Observe: func(kind string, took time.Duration) {
					got = append(got, observed{kind, took})
				}})
				ctx := t.Context()
				if caller != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, caller)
					defer cancel()
				}
				var d [1]backend.Decision
				began := time.Now()
				if err := s.Take(ctx, []backend.Take{{Key: []byte("k"), Limit: perDay(5), Hits: 1}}, d[:]); err != nil {
					t.Errorf("Take: %v, want a decision", err)
				}
				if took := time.Since(began); took != want {
					t.Errorf("Take took %v, want %v", took, want)
				}
				if !d[0].OK || d[0].Source != backend.LocalShare {
					t.Errorf("decision = %+v, want one of the local share", d[0])
				}
				if len(got) != 1 || got[0] != (observed{"timeout", want}) {
					t.Errorf("observed %v, want one timeout after %v", got, want)
				}
			})
		})
	}
	f("default budget", 0, 0, 5*ms)
	f("a budget of one's own", 70*ms, 0, 70*ms)
	f("the caller has longer", 5*ms, 20*ms, 5*ms)
	f("the caller has less", 50*ms, 20*ms, 18*ms)
	f("the caller has little", 50*ms, 3*ms, 2*ms)
	f("the caller has nothing left", 50*ms, ms, 0)
}

type kindError struct{ error }

func (kindError) Kind() string { return "pool" }

func TestErrorsOfTheStoreAreDecisions(t *testing.T) {
	f := func(err error, want string) {
		t.Helper()
		kinds := ""
		inner := newFault()
		inner.set(0, err)
		s := failover.New(inner, failover.Options{Observe: func(kind string, _ time.Duration) { kinds += kind }})
		defer s.Close()
		if d := one(t, s, "k", perDay(5), 1); !d.OK || d.Source != backend.LocalShare || kinds != want {
			t.Errorf("decision = %+v, observed %q, want a local one and %q", d, kinds, want)
		}
	}
	f(kindError{errors.New("no free connection")}, "pool")
	f(errors.New("boom"), "other")
	f(context.DeadlineExceeded, "timeout")
}

func TestACallerThatHasLeftIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFault()
		s := run(t, inner, failover.Options{Budget: time.Second})
		ctx, leave := context.WithCancel(t.Context())
		take := []backend.Take{{Key: []byte("k"), Limit: perDay(5), Hits: 1}}
		resume := inner.stop()
		time.AfterFunc(ms, leave)
		if err := s.Take(ctx, take, make([]backend.Decision, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("Take: %v, want that the caller has left", err)
		}
		asked := inner.calls()
		if err := s.Take(ctx, take, make([]backend.Decision, 1)); !errors.Is(err, context.Canceled) || inner.calls() != asked {
			t.Errorf("Take: %v after %d calls of the store, want no more than %d", err, inner.calls(), asked)
		}
		resume()
	})
}

func TestOnFailureDecides(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rule   backend.OnFailure
		def    backend.OnFailure
		mode   backend.Mode
		want   string // of four calls, with a limit of two
		source backend.Source
	}{
		{"the default is local", backend.FailDefault, backend.FailDefault, backend.Enforce, "++--", backend.LocalShare},
		{"the setting", backend.FailDefault, backend.FailDeny, backend.Enforce, "----", backend.DegradedDeny},
		{"the rule goes before it", backend.FailLocal, backend.FailDeny, backend.Enforce, "++--", backend.LocalShare},
		{"allow", backend.FailAllow, backend.FailDeny, backend.Enforce, "++++", backend.DegradedAllow},
		{"deny", backend.FailDeny, backend.FailAllow, backend.Enforce, "----", backend.DegradedDeny},
		{"deny in shadow", backend.FailDeny, backend.FailAllow, backend.Shadow, "----", backend.DegradedDeny},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inner := newFault()
			inner.set(0, errors.New("away"))
			s := failover.New(inner, failover.Options{OnFailure: tt.def})
			defer s.Close()
			var got strings.Builder
			for range 4 {
				var d [1]backend.Decision
				take := backend.Take{Key: []byte("k"), Limit: perDay(2), Hits: 1, Mode: tt.mode, OnFailure: tt.rule}
				if err := s.Take(t.Context(), []backend.Take{take}, d[:]); err != nil {
					t.Fatal(err)
				}
				got.WriteString(map[bool]string{true: "+", false: "-"}[d[0].OK])
				if d[0].Source != tt.source || d[0].OK == (d[0].Wait > 0) {
					t.Errorf("decision = %+v, want source %d, and a wait if it is not OK", d[0], tt.source)
				}
			}
			if got.String() != tt.want {
				t.Errorf("calls = %s, want %s", got.String(), tt.want)
			}
		})
	}
}

func TestADeniedCallTakesNothingFromTheLocalShares(t *testing.T) {
	inner := newFault()
	inner.set(0, errors.New("away"))
	s := failover.New(inner, failover.Options{})
	defer s.Close()
	takes := []backend.Take{
		{Key: []byte("a"), Limit: perDay(2), Hits: 1},
		{Key: []byte("b"), Limit: perDay(2), Hits: 1, OnFailure: backend.FailDeny},
	}
	for range 5 {
		if err := s.Take(t.Context(), takes, make([]backend.Decision, 2)); err != nil {
			t.Fatal(err)
		}
	}
	if d := one(t, s, "a", perDay(2), 1); !d.OK || d.Remaining() != 1 {
		t.Errorf("decision = %+v, want the first of two tokens", d)
	}
}

func TestRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFault()
		s := run(t, inner, failover.Options{Refuse: true})
		resume := inner.stop()
		err := s.Take(t.Context(), []backend.Take{{Key: []byte("k"), Limit: perDay(5), Hits: 1}}, make([]backend.Decision, 1))
		if !errors.Is(err, failover.ErrUnavailable) || !strings.Contains(err.Error(), "budget") {
			t.Errorf("Take: %v, want ErrUnavailable and why", err)
		}
		resume()
		time.Sleep(time.Second)
		if d := one(t, inner, "k", perDay(5), 0); d.Remaining() != 5 {
			t.Errorf("%d tokens are left, want 5: the call had no answer and must cost nothing", d.Remaining())
		}
	})
}

// A full set of workers is an error at once, and it does not grow.
func TestTooManyInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFault()
		resume := inner.stop()
		var full atomic.Int64
		s := run(t, inner, failover.Options{MaxInFlight: 3, Observe: func(kind string, took time.Duration) {
			if kind == "full" {
				full.Add(1)
				if took > 0 {
					t.Errorf("a call waited %v for a worker", took)
				}
			}
		}})
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { one(t, s, "k", perDay(100), 1) })
		}
		callers.Wait()
		if n := full.Load(); n != 7 || s.InFlight() != 3 {
			t.Errorf("%d calls found the workers full, and %d are in flight, want 7 and 3", n, s.InFlight())
		}
		resume()
		synctest.Wait()
		if n := s.InFlight(); n != 0 {
			t.Errorf("%d are in flight, want none", n)
		}
	})
}

// panicStore is a mistake of ours in the flesh.
type panicStore struct{}

func (panicStore) Take(context.Context, []backend.Take, []backend.Decision) error { panic("boom") }

func TestAPanicOfTheStoreIsAnErrorOfItsCallAlone(t *testing.T) {
	s := failover.New(panicStore{}, failover.Options{Budget: time.Minute})
	defer s.Close()
	for range 3 {
		if d := one(t, s, "k", perDay(5), 1); !d.OK || d.Source != backend.LocalShare {
			t.Errorf("decision = %+v, want a local one", d)
		}
	}
}
