package failover_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/failover"
)

// steady sends a call each gap until stop is called, and says how long the longest took
// and how many were not the store's.
func steady(t *testing.T, s *failover.Store, gap time.Duration) (stop func() (worst time.Duration, degraded int)) {
	t.Helper()
	var (
		worst    time.Duration
		degraded int
		mu       sync.Mutex
		calls    sync.WaitGroup
	)
	done := make(chan struct{})
	calls.Go(func() {
		tick := time.NewTicker(gap)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			calls.Go(func() {
				began := time.Now()
				d := one(t, s, "steady", perSecond(1e6, 1e6), 1)
				mu.Lock()
				defer mu.Unlock()
				worst = max(worst, time.Since(began))
				if d.Source != backend.Bucketed {
					degraded++
				}
			})
		}
	})
	return func() (time.Duration, int) {
		close(done)
		calls.Wait()
		return worst, degraded
	}
}

func TestOneLateAnswerOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFault()
		s := run(t, inner, failover.Options{Probe: inner.probe})
		for range 20 {
			resume := inner.stop()
			one(t, s, "k", perDay(1000), 1)
			time.Sleep(10 * ms)
			resume()
			for range 5 {
				one(t, s, "k", perDay(1000), 1)
				time.Sleep(100 * ms)
			}
			if s.Open() {
				t.Fatal("the breaker is open")
			}
		}
	})
}

// A server that halts for less than 50 ms is busy, not away, however many ask meanwhile.
func TestAShortHaltOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFault()
		s := run(t, inner, failover.Options{Probe: inner.probe})
		stop := steady(t, s, ms)
		time.Sleep(time.Second)
		resume := inner.stop()
		time.Sleep(40 * ms)
		resume()
		time.Sleep(time.Second)
		if s.Open() {
			t.Error("the breaker is open")
		}
		if worst, degraded := stop(); worst > 5*ms || degraded > 40 {
			t.Errorf("the longest call took %v and %d were degraded, want at most 5ms and 40", worst, degraded)
		}
	})
}

func TestTheBreakerOpensAndClosesByItself(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault func(f *fault) (mend func())
		gap   time.Duration // between calls; 0: none once the breaker is open
		open  time.Duration // at the latest after the fault began
	}{
		{"hung under load", (*fault).stop, ms, 60 * ms},
		{"hung, few calls", (*fault).stop, 50 * ms, 320 * ms},
		{"refused", func(f *fault) func() {
			f.set(0, errors.New("connection refused"))
			return func() { f.set(0, nil) }
		}, ms, 60 * ms},
		{"slow", func(f *fault) func() {
			f.set(20*ms, nil)
			return func() { f.set(0, nil) }
		}, ms, 100 * ms},
		{"each other one fails", func(f *fault) func() {
			done := make(chan struct{})
			var flapping sync.WaitGroup
			flapping.Go(func() {
				for bad := true; ; bad = !bad {
					if f.set(0, nil); bad {
						f.set(0, errors.New("boom"))
					}
					select {
					case <-done:
						return
					case <-time.After(7 * ms): // longer than the gap of the calls, so that they see both
					}
				}
			})
			return func() { close(done); flapping.Wait(); f.set(0, nil) }
		}, ms, 1500 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFault()
				s := run(t, inner, failover.Options{Probe: inner.probe})
				stop := steady(t, s, tt.gap)
				time.Sleep(time.Second)
				mend := tt.fault(inner)
				began := time.Now()
				for !s.Open() && time.Since(began) < time.Minute {
					time.Sleep(ms)
				}
				if took := time.Since(began); took > tt.open {
					t.Errorf("the breaker opened after %v, want %v at the latest", took, tt.open)
				}
				if worst, _ := stop(); worst > 5*ms {
					t.Errorf("the longest call took %v, want 5ms at most", worst)
				}
				time.Sleep(500 * ms)
				if tt.name != "each other one fails" && !s.Open() {
					t.Fatal("the breaker closed while the store was away")
				}
				if s.Open() { // no call waits, and none is sent
					var d [1]backend.Decision
					take := []backend.Take{{Key: []byte("now"), Limit: perDay(5), Hits: 1}}
					if decided, err := s.TakeNow(take, d[:]); !decided || err != nil || !d[0].OK || d[0].Source != backend.LocalShare {
						t.Errorf("TakeNow: %v, %v, %+v, want a local decision", decided, err, d[0])
					}
					asked, began := inner.calls(), time.Now()
					if d := one(t, s, "k", perDay(5), 1); d.Source != backend.LocalShare || time.Since(began) > 0 || inner.calls() != asked {
						t.Errorf("decision = %+v after %v and %d calls of the store, want a local one at once", d, time.Since(began), inner.calls()-asked)
					}
				}
				mend()
				began = time.Now()
				for s.Open() && time.Since(began) < time.Minute {
					time.Sleep(ms)
				}
				if took := time.Since(began); took > 700*ms {
					t.Errorf("the breaker closed after %v without any call, want less than 700ms", took)
				}
				if decided, err := s.TakeNow([]backend.Take{{Key: []byte("now"), Limit: perDay(5), Hits: 1}}, make([]backend.Decision, 1)); decided || err != nil {
					t.Errorf("TakeNow: %v, %v once the store is back, want none", decided, err)
				}
				if d := one(t, s, "fresh", perDay(5), 1); d.Source != backend.Bucketed {
					t.Errorf("decision = %+v, want the store's", d)
				}
			})
		})
	}
}

// Probes of many instances must not come at the same moments.
func TestProbesHaveJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFault()
		inner.set(0, errors.New("away"))
		var mu sync.Mutex
		gaps := map[time.Duration]int{}
		var last atomic.Int64
		s := run(t, inner, failover.Options{Probe: func(context.Context, string) error {
			now := time.Now().UnixNano()
			if before := last.Swap(now); before != 0 {
				gap := time.Duration(now - before)
				mu.Lock()
				gaps[gap]++
				mu.Unlock()
				if gap < 80*ms || gap > 120*ms {
					t.Errorf("%v between two probes, want 80ms to 120ms", gap)
				}
			}
			return errors.New("away")
		}})
		for range 10 {
			one(t, s, "k", perDay(1000), 1)
			time.Sleep(20 * ms)
		}
		if !s.Open() {
			t.Fatal("the breaker is closed")
		}
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(gaps) < 20 {
			t.Errorf("%d different gaps between probes, want many", len(gaps))
		}
	})
}

// twoServers keeps the keys that begin with a and those that begin with b apart.
type twoServers struct{ a, b *fault }

func (s *twoServers) server(key []byte) string { return string(key[:1]) }

func (s *twoServers) probe(ctx context.Context, server string) error {
	return map[string]*fault{"a": s.a, "b": s.b}[server].probe(ctx, server)
}

// Take asks one of the two: the calls of these tests that need both never reach a healthy
// pair.
func (s *twoServers) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	f := map[string]*fault{"a": s.a, "b": s.b}[s.server(takes[0].Key)]
	return f.Take(ctx, takes, dst)
}

// One dead server degrades its own keys and no others, and a call that needs both is
// decided by both.
func TestOneServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &twoServers{newFault(), newFault()}
		s := run(t, inner, failover.Options{Server: inner.server, Probe: inner.probe})
		inner.b.set(0, errors.New("away"))
		for range 10 {
			one(t, s, "b", perDay(1000), 1)
			one(t, s, "a", perDay(1000), 1)
			time.Sleep(10 * ms)
		}
		if open := s.Breakers(); open["a"] || !open["b"] {
			t.Fatalf("open breakers = %v, want that of b alone", open)
		}
		if d := one(t, s, "a", perDay(1000), 1); d.Source != backend.Bucketed || d.Remaining() != 989 {
			t.Errorf("decision = %+v, want the store's with 989 left", d)
		}
		both := func(limitA, limitB uint64, failB backend.OnFailure, mode backend.Mode) (a, b backend.Decision) {
			t.Helper()
			takes := []backend.Take{
				{Key: []byte("a1"), Limit: perDay(limitA), Hits: 1, Mode: mode},
				{Key: []byte("b1"), Limit: perDay(limitB), Hits: 1, Mode: mode, OnFailure: failB},
			}
			var d [2]backend.Decision
			if err := s.Take(t.Context(), takes, d[:]); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return d[0], d[1]
		}
		left := func() uint64 { d := one(t, inner.a, "a1", perDay(5), 0); return d.Remaining() }

		if a, b := both(5, 5, backend.FailDefault, backend.Enforce); !a.OK || !b.OK || b.Source != backend.LocalShare || left() != 4 {
			t.Errorf("a call of both: %+v and %+v, and %d left, want that both pass", a, b, left())
		}
		if a, b := both(5, 5, backend.FailDeny, backend.Enforce); !a.OK || a.Charged != 0 || b.OK || a.Remaining() != 5 && a.Remaining() != 4 {
			t.Errorf("a call that b denies: %+v and %+v, want that nothing is charged", a, b)
		}
		if n := left(); n != 4 {
			t.Errorf("%d tokens are left of a, want 4: a denied call costs nothing", n)
		}
		if a, b := both(5, 5, backend.FailDeny, backend.Quota); !a.OK || a.Charged != 1 || b.OK {
			t.Errorf("a call of two quotas: %+v and %+v, want that one pays for both", a, b)
		}
		for range 3 {
			one(t, inner.a, "a1", perDay(5), 1)
		}
		if a, b := both(5, 5, backend.FailDefault, backend.Enforce); a.OK || !b.OK || b.Charged != 0 {
			t.Errorf("a call that a denies: %+v and %+v, want that nothing is charged", a, b)
		}
		if a, b := both(5, 5, backend.FailDeny, backend.Quota); a.OK || b.OK || a.Charged+b.Charged != 0 {
			t.Errorf("a call of two empty quotas: %+v and %+v, want that it is denied", a, b)
		}
	})
}
