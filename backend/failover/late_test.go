package failover_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/failover"
	"github.com/sluice-rls/sluice/backend/memstore"
)

// later is a store that charges at once and says so after some time.
type later struct {
	backend.Store
	after func(takes []backend.Take) time.Duration
}

// Start implements backend.Starter.
func (s *later) Start(_ time.Time, takes []backend.Take, dst []backend.Decision, then backend.Continuation) {
	wait := s.after(takes)
	go func() {
		got := make([]backend.Decision, len(dst))
		err := s.Take(nil, takes, got) //nolint:staticcheck // the memory store looks at no context
		time.Sleep(wait)
		copy(dst, got)
		backend.End(then, err)
	}()
}

// toldOnce is a continuation that counts how often it is told.
type toldOnce struct {
	told atomic.Int32
	done func(error)
}

// Done implements backend.Continuation.
func (c *toldOnce) Done(err error) backend.Flusher {
	if c.told.Add(1) == 1 {
		c.done(err)
	}
	return nil
}

// A third of the answers are late: their calls are let through by the local share, which owes
// the store what it did not charge.
func TestLateAnswersLetNobodyThroughTwice(t *testing.T) {
	for _, every := range []int{0, 10, 3} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			inner := &later{Store: memstore.New(memstore.Options{}), after: func(takes []backend.Take) time.Duration {
				if n := int(asked.Add(1)); every > 0 && n%every == 0 && takes[0].Overflow != backend.Debt {
					return 9 * ms
				}
				return ms
			}}
			s := failover.New(inner, failover.Options{})
			limit := perSecond(1000, 100)
			var mu sync.Mutex
			var calls sync.WaitGroup
			passed := 0
			for range 20_000 { // in five seconds
				dst := make([]backend.Decision, 1)
				calls.Add(1)
				s.Start(time.Time{}, []backend.Take{{Key: []byte("k"), Limit: limit, Hits: 1}}, dst, &toldOnce{done: func(err error) {
					defer calls.Done()
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					} else if dst[0].OK {
						passed++
					}
				}})
				time.Sleep(250 * time.Microsecond)
				synctest.Wait()
			}
			calls.Wait()
			s.Close()
			if passed > 5110 || passed < 4800 { // what is on its way for 10 ms is let through later
				t.Errorf("one of %d answers late: %d passed, want the 5100 of one bucket, or nearly all of them", every, passed)
			}
		})
	}
}

// Answers that come as the budget ends are given once, each to its own call.
func TestAnswersAsTheBudgetEnds(t *testing.T) {
	const budget = 2 * ms
	inner := &later{Store: memstore.New(memstore.Options{}), after: func([]backend.Take) time.Duration {
		return budget - 100*time.Microsecond + time.Duration(rand.IntN(200))*time.Microsecond
	}}
	s := failover.New(inner, failover.Options{Budget: budget, Slow: time.Minute, MaxInFlight: 100_000})
	end := time.Now().Add(time.Second)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for !t.Failed() && time.Now().Before(end) {
				var answers sync.WaitGroup
				began := time.Now()
				for i := range 20 {
					answers.Add(1)
					s.Start(time.Time{}, []backend.Take{{Key: []byte{byte(i)}, Limit: perSecond(1e6, 1e6), Hits: 1}}, make([]backend.Decision, 1),
						&toldOnce{done: func(error) {
							if took := time.Since(began); took < budget/2 {
								t.Errorf("a call was answered after %v, before the store can have", took)
							}
							answers.Done()
						}})
				}
				answers.Wait()
			}
		})
	}
	running.Wait()
	s.Close()
}

// A caller that has left and is not answered yet may still have something to give back.
func TestCloseWaitsForThoseWhoHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &later{Store: memstore.New(memstore.Options{}), after: func([]backend.Take) time.Duration { return 6 * ms }}
		deciding := make(chan struct{})
		s := failover.New(inner, failover.Options{OnFailure: backend.FailDeny, Observe: func(string, time.Duration) { <-deciding }})
		s.Start(time.Time{}, []backend.Take{{Key: []byte("k"), Limit: perDay(10), Hits: 4}}, make([]backend.Decision, 1), &toldOnce{done: func(error) {}})
		time.Sleep(10 * ms) // it has left, and the store has answered
		closed := make(chan struct{})
		go func() {
			s.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait")
		default:
		}
		close(deciding)
		<-closed
		if d := one(t, inner, "k", perDay(10), 0); d.Remaining() != 10 {
			t.Errorf("%d tokens are left, want all 10: the call was denied", d.Remaining())
		}
	})
}
