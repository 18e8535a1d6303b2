package prefetch_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/failover"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/backend/prefetch"
)

// A store whose answers take most of the budget decides all the same, though a call may have
// to wait for the end of one ask and for another; and a caller with hardly any time does not
// cut that short for others.
func TestAStoreThatIsFarAwayDecides(t *testing.T) {
	for _, hasty := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inner := &told{Store: memstore.New(memstore.Options{}), lasts: 4 * time.Millisecond}
			guarded := failover.New(inner, failover.Options{})
			s := prefetch.New(guarded, prefetch.Options{Budget: 5 * time.Millisecond})
			ctx, cancel := context.WithCancel(t.Context())
			var running, calls sync.WaitGroup
			running.Go(func() { _ = s.Run(ctx) })
			call := []backend.Take{charge("k", perSecond(1000, 1000), 1)}
			var mu sync.Mutex
			local, worst := 0, time.Duration(0)
			for i := range 8000 { // in two seconds
				calls.Go(func() {
					began, dst := time.Now(), make([]backend.Decision, 1)
					if err := s.Take(t.Context(), call, dst); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					worst = max(worst, time.Since(began))
					if dst[0].Source != backend.Bucketed {
						local++
					}
				})
				if hasty && i%100 == 0 {
					calls.Go(func() {
						short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
						defer cancel()
						_ = s.Take(short, call, make([]backend.Decision, 1)) // without the store, or not at all
					})
				}
				time.Sleep(250 * time.Microsecond)
			}
			calls.Wait()
			cancel()
			running.Wait()
			guarded.Close()
			if local > 0 || worst > 9*time.Millisecond {
				t.Errorf("hasty callers %v: %d calls decided without the store, which is healthy, and %v at worst", hasty, local, worst)
			}
		})
	}
}

func TestSeveralKeysThatComeOnceAreNotRemembered(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		for i := range 100 {
			tenant, route := string(rune('a'+i%26))+string(rune('a'+i/26)), "route"+string(rune('0'+i))
			b.call(charge(tenant, hour, 1), charge(route, hour, 1))
		}
		if n := b.store.Entries(); n != 0 {
			t.Errorf("%d entries of keys that came once", n)
		}
	})
}

// Once a store does not answer, nobody waits for it twice.
func TestAStoreThatHangsIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &told{Store: memstore.New(memstore.Options{})}
		guarded := failover.New(inner, failover.Options{})
		s := prefetch.New(guarded, prefetch.Options{Budget: 5 * time.Millisecond})
		call := []backend.Take{charge("k", perSecond(1000, 1000), 1)}
		var mu sync.Mutex
		var calls sync.WaitGroup
		worst := time.Duration(0)
		for i := range 2000 {
			if i == 1000 {
				inner.lasts = 200 * time.Millisecond
			}
			calls.Go(func() {
				began, dst := time.Now(), make([]backend.Decision, 1)
				if err := s.Take(t.Context(), call, dst); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				worst = max(worst, time.Since(began))
			})
			time.Sleep(100 * time.Microsecond)
			synctest.Wait()
		}
		calls.Wait()
		guarded.Close()
		if worst > 6*time.Millisecond {
			t.Errorf("%v at worst, want the budget of 5 ms and a little", worst)
		}
	})
}
