package prefetch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/backend/prefetch"
)

// Fixed windows. A bubble begins at midnight, and so does a window of any length that a day has
// room for.

func inWindow(requests uint64, period time.Duration) backend.Limit {
	return backend.Limit{Algorithm: backend.FixedWindow, Requests: requests, Period: period, Burst: 1}
}

// TestFleetOfWindows is twenty instances on one key. In no window more is admitted than its
// limit. Where more is asked for, nearly all of it is, also if the load jumps between instances
// so fast that what they hold is at the wrong place.
func TestFleetOfWindows(t *testing.T) {
	const rate = 10_000
	second := inWindow(rate, time.Second)
	peak := func(l backend.Limit, f load, share float64) fleet {
		return fleet{limit: l, instances: 20, load: f, peak: share, lasts: 2 * time.Second}
	}
	for name, c := range map[string]struct {
		fleet
		least float64 // admitted of what an exact window admits
	}{
		"far below":        {peak(second, even(0.2*rate), 0.2*rate/20), 1},
		"below":            {peak(second, even(0.9*rate), 0.9*rate/20), 0.999},
		"a little above":   {peak(second, even(1.02*rate), 1.02*rate/20), 0.995},
		"above":            {peak(second, even(2*rate), 2*rate/20), 0.995},
		"skewed":           {peak(second, skewed(2*rate), 0.4*rate), 0.995},
		"moving":           {peak(second, moving(1.1*rate), 0.88*rate), 0.99},
		"longer":           {peak(inWindow(2000, 2*time.Second), even(2000), 100), 0.995},
		"costs":            {fleet{limit: inWindow(1000, time.Second), instances: 20, load: even(1000), peak: 50, lasts: 3 * time.Second, cost: oneToFive}, 0.995},
		"hopping thousand": {peak(inWindow(1000, time.Second), hopping(500, 10_000, 1500*time.Millisecond), 500), 0.995},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := c.run(t)
			r.check(t)
			if r.admitted < c.least*r.exact {
				t.Errorf("%v admitted, want %v of the %v that an exact window admits", r.admitted, c.least, r.exact)
			}
		})
	}
}

// rough is a store at the other end of a bad network, which takes up to 30 ms each way and loses
// some asks and some answers.
type rough struct {
	backend.Store
	mu     sync.Mutex
	random *rand.Rand
}

const roughest = 60 * time.Millisecond

func (r *rough) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	r.mu.Lock()
	luck, there := r.random.IntN(20), time.Duration(r.random.Int64N(int64(roughest)/2))
	back := time.Duration(r.random.Int64N(int64(roughest) / 2))
	r.mu.Unlock()
	time.Sleep(there)
	if luck == 0 {
		return errLost
	}
	err := r.Store.Take(ctx, takes, dst)
	time.Sleep(back)
	if luck == 1 {
		return errLost
	}
	return err
}

// TestWindowsOfABadNetwork has four instances whose asks and answers cross the edges of windows,
// or are lost, and of which one crashes now and then. More is asked for than there is, and in no
// window more is admitted.
func TestWindowsOfABadNetwork(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			limit := inWindow([]uint64{3000, 15_000}[seed%2], []time.Duration{time.Second, 5 * time.Second}[seed%2])
			shared := &rough{Store: memstore.New(memstore.Options{}), random: rand.New(rand.NewPCG(seed, 9))}
			m := &meter{limit: limit, at: time.Now(), late: roughest}
			ctx, cancel := context.WithCancel(t.Context())
			var running, calling sync.WaitGroup
			stores := make([]*prefetch.Store, 4)
			begin := func(i int) {
				s := prefetch.New(shared, prefetch.Options{})
				stores[i] = s
				running.Go(func() { _ = s.Run(ctx) })
			}
			for i := range stores {
				begin(i)
			}
			random := rand.New(rand.NewPCG(seed, 10))
			saved := uint64(0)
			for n := range 30_000 {
				i := random.IntN(len(stores))
				if n%5000 == 4999 { // its tokens are gone: nobody asks it any more
					_, leased, _, _ := stores[i].Counts()
					saved += leased
					begin(i)
				}
				hits, s := 1+random.Uint64N(2), stores[i]
				m.ask(hits)
				calling.Go(func() {
					var dst [1]backend.Decision
					if err := s.Take(ctx, []backend.Take{charge("k", limit, hits)}, dst[:]); err == nil && dst[0].OK {
						m.admit(hits)
					}
				})
				time.Sleep(time.Duration(random.IntN(800)) * time.Microsecond)
			}
			calling.Wait()
			cancel()
			running.Wait()
			result{meter: m, requests: 1}.check(t)
			if m.admitted < m.exact/2 || saved < 1000 {
				t.Errorf("seed %d: %v of %v admitted, %d calls decided in memory: the test shows nothing", seed, m.admitted, m.exact, saved)
			}
		})
	}
}

// restOfMinute is the time until the running minute ends.
func restOfMinute() time.Duration {
	return time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))
}

// TestLeaseEndsWithItsWindow looks at an instance around the edge of two windows.
func TestLeaseEndsWithItsWindow(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		limit := inWindow(10_000, time.Minute)
		time.Sleep(59500 * time.Millisecond)
		b.near.lasts = 50 * time.Microsecond
		b.heat("k", limit, 100)
		waited := 0
		for end := time.Now().Add(restOfMinute()); time.Until(end) > 500*time.Microsecond; {
			began := time.Now()
			if got := b.call(charge("k", limit, 1))[0]; !got.OK || (restOfMinute()-got.Full).Abs() > b.near.lasts {
				t.Errorf("%+v, %v before the end of the window", got, restOfMinute())
			}
			if time.Since(began) > 0 {
				waited++
			}
			time.Sleep(300 * time.Microsecond)
		}
		if held := b.store.Held(); held == 0 || waited > 20 {
			t.Errorf("%d held at the end, and %d calls waited: want a lease until then", held, waited)
		}
		time.Sleep(restOfMinute())
		if got := b.call(charge("k", limit, 1))[0]; !got.OK || got.Remaining() != 9999 {
			t.Errorf("%+v in the next window, want its first token", got)
		}
		synctest.Wait()
		if got, mine := b.level("k", limit), b.store.Held(); got+float64(mine) != 9999 {
			t.Errorf("level %v and %d held after one of 10,000", got, mine)
		}
	})
}

// TestWindowIsOverUnused has tokens end that nobody asks for any more. No ask is made for them.
func TestWindowIsOverUnused(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		limit := inWindow(1_000_000, time.Second)
		b.heat("k", limit, 990)
		held, before := b.store.Held(), b.near.count()
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if got := b.store.Held(); got != 0 || b.near.count() != before {
			t.Errorf("%d of %d tokens held after their window, and %d asks", got, held, b.near.count()-before)
		}
		granted, returned := b.store.Moved()
		want := fmt.Sprintf(`
			# HELP ratelimit_lease_tokens_total Tokens that came ahead of use, that went back unused, that ended unused with their window, and that were lost on their way back.
			# TYPE ratelimit_lease_tokens_total counter
			ratelimit_lease_tokens_total{event="expired"} %d
			ratelimit_lease_tokens_total{event="granted"} %d
			ratelimit_lease_tokens_total{event="lost"} 0
			ratelimit_lease_tokens_total{event="returned"} %d
		`, held, granted, returned)
		if err := testutil.CollectAndCompare(b.store, strings.NewReader(want), "ratelimit_lease_tokens_total"); err != nil {
			t.Error(err)
		}
	})
}

// TestLongWindowTakesBack has an instance that cools within a window of a day.
func TestLongWindowTakesBack(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		limit := inWindow(10_000, 24*time.Hour)
		b.heat("k", limit, 300)
		time.Sleep(backend.LeaseLife)
		synctest.Wait()
		if got := b.level("k", limit); got != 9700 || b.store.Held() != 0 {
			t.Errorf("level %v and %d held after 300 of 10,000 and a pause", got, b.store.Held())
		}
	})
}

// TestWindowTellsItsEnd looks at the times of decisions that are made in memory.
func TestWindowTellsItsEnd(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		limit := inWindow(1000, time.Minute)
		b.heat("k", limit, 500)
		rest := restOfMinute()
		before := b.near.count()
		if got := b.call(charge("k", limit, 1))[0]; !got.OK || got.Full != rest || got.Remaining() != 499 || b.near.count() != before {
			t.Errorf("leased: %+v, want 499 left and full in %v", got, rest)
		}
		if got := b.call(charge("k", limit, 499))[0]; !got.OK {
			t.Fatalf("%+v for all that is left", got)
		}
		b.call(charge("k", limit, 1))
		for range 3 {
			time.Sleep(300 * time.Millisecond)
			before, rest := b.near.count(), restOfMinute()
			if got := b.call(charge("k", limit, 1))[0]; got.OK || got.Wait != rest || got.Full != rest || b.near.count() != before {
				t.Errorf("denied: %+v and %d calls to the store, want a wait of %v from memory", got, b.near.count()-before, rest)
			}
		}
		time.Sleep(200 * time.Millisecond)
		before = b.near.count()
		if b.call(charge("k", limit, 1)); b.near.count() == before {
			t.Error("denied in memory for more than a second")
		}
		time.Sleep(restOfMinute() - 100*time.Millisecond)
		if got := b.call(charge("k", limit, 1))[0]; got.OK || got.Wait != 100*time.Millisecond {
			t.Errorf("%+v shortly before the end, want a denial", got)
		}
		time.Sleep(100 * time.Millisecond)
		if got := b.call(charge("k", limit, 1))[0]; !got.OK || got.Remaining() != 999 {
			t.Errorf("%+v in the next window, want 999 left", got)
		}
	})
}

// TestCrashInAWindow has an instance that never says what became of its tokens.
func TestCrashInAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := inWindow(1000, time.Minute)
		b := &bench{T: t, direct: memstore.New(memstore.Options{})}
		b.store = prefetch.New(b.direct, prefetch.Options{}) // and nobody runs it
		for range 500 {
			b.call(charge("k", limit, 1))
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		held := b.store.Held()
		if held == 0 || held > 50 {
			t.Errorf("%d tokens held by one instance, want some and 5 %% of the limit at most", held)
		}
		time.Sleep(3 * backend.LeaseLife)
		if got := b.level("k", limit); got != 500-float64(held) {
			t.Errorf("level %v after 500 of 1000 while %d are lost, want them gone", got, held)
		}
		time.Sleep(time.Minute)
		if got := b.level("k", limit); got != 1000 {
			t.Errorf("level %v in the next window, want 1000", got)
		}
	})
}

// TestAskCrossesTheEdge has an ask under way from one window to the next, while tokens are held.
func TestAskCrossesTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, direct: memstore.New(memstore.Options{})}
		b.near = &near{Store: b.direct}
		b.store = prefetch.New(b.near, prefetch.Options{}) // and nobody runs it: it would look at the edge
		limit := inWindow(10_000, time.Minute)
		time.Sleep(59900 * time.Millisecond)
		b.near.lasts = 50 * time.Microsecond
		for end := time.Now().Add(restOfMinute()); time.Until(end) > 2*time.Millisecond; {
			b.call(charge("k", limit, 1))
			time.Sleep(100 * time.Microsecond)
		}
		b.near.lasts = 5 * time.Millisecond
		before := b.near.count()
		for b.near.count() == before && b.store.Held() > 1 {
			b.call(charge("k", limit, 1))
			synctest.Wait()
		}
		if held := b.store.Held(); held == 0 || b.near.count() == before {
			t.Errorf("%d held and %d asks on their way, want some and one", held, b.near.count()-before)
		}
		time.Sleep(6 * time.Millisecond)
		synctest.Wait()
		if got, held := b.level("k", limit), b.store.Held(); got == 10_000 || got+float64(held) != 10_000 {
			t.Errorf("level %v and %d held before anything was asked for, want 10,000 in all, and some held", got, held)
		}
	})
}

// TestReturnsOfAnotherWindow has a call of two takes that takes a token here, waits for the store
// and is denied there, when the window of the token is over.
func TestReturnsOfAnotherWindow(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		hot, gone := inWindow(10_000, time.Minute), inWindow(1, time.Hour)
		b.call(charge("gone", gone, 1))
		time.Sleep(59400 * time.Millisecond)
		for end := time.Now().Add(restOfMinute()); time.Until(end) > 10*time.Millisecond; {
			b.call(charge("hot", hot, 1))
			time.Sleep(time.Millisecond)
		}
		b.near.lasts = 50 * time.Millisecond
		held := b.store.Held()
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if got := b.call(charge("hot", hot, 1), charge("gone", gone, 1)); got[1].OK || got[0].Charged != 0 {
				t.Errorf("%+v, want a denied call", got)
			}
		})
		synctest.Wait()
		if b.store.Held() != held-1 {
			t.Errorf("%d of %d held, want one taken", b.store.Held(), held)
		}
		time.Sleep(11 * time.Millisecond)
		b.near.lasts = 0
		b.call(charge("hot", hot, 1)) // has the entry see the next window
		waiting.Wait()
		b.end()
		if got := b.level("hot", hot); got != 9999 {
			t.Errorf("level %v after one call in this window, want 9999", got)
		}
	})
}

// TestSlowCallAtTheEdge has a goroutine that is stopped once it has taken a token, until the entry
// has tokens of the next window.
func TestSlowCallAtTheEdge(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		limit := inWindow(10_000, time.Minute)
		time.Sleep(59900 * time.Millisecond)
		for end := time.Now().Add(restOfMinute()); time.Until(end) > 2*time.Millisecond; {
			b.call(charge("k", limit, 1))
			time.Sleep(100 * time.Microsecond)
		}
		held := b.store.Held()
		passed := b.store.SlowTake(charge("k", limit, 1), func() {
			time.Sleep(restOfMinute())
			b.call(charge("k", limit, 1))
			synctest.Wait()
		})
		if mine := b.store.Held(); passed || held == 0 || mine == 0 {
			t.Errorf("passed %v with one of %d tokens of the window before, with %d of the next one; want that it does not", passed, held, mine)
		}
		b.end()
		if got := b.level("k", limit); got != 9999 {
			t.Errorf("level %v after one call in this window, want 9999", got)
		}
	})
}

// TestManyAtTheEdge has many goroutines spend while windows come and go, by a clock that is
// theirs and the store's. It is for what happens between two steps of one that is slow.
func TestManyAtTheEdge(t *testing.T) {
	const limit, seconds = 5000, 10
	var clock atomic.Int64 // microseconds
	begin := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	store := prefetch.New(memstore.New(memstore.Options{Now: func() time.Time { return begin.Add(time.Duration(clock.Load()) * time.Microsecond) }}), prefetch.Options{})
	store.SetClock(func() int64 { return clock.Load()*1000 + 1 })
	var admitted [seconds + 1]atomic.Int64
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			var dst [1]backend.Decision
			for {
				window := clock.Load() / 1e6
				if window >= seconds {
					return
				}
				if err := store.Take(t.Context(), []backend.Take{charge("k", inWindow(limit, time.Second), 1)}, dst[:]); err != nil {
					t.Error(err)
				}
				if dst[0].OK && clock.Load()/1e6 == window { // else it may be of the next one
					admitted[window].Add(1)
				}
				clock.Add(20)
			}
		})
	}
	running.Wait()
	_, saved, _, _ := store.Counts()
	for window := range admitted {
		if n := admitted[window].Load(); n > limit {
			t.Errorf("%d admitted in window %d, want %d at most", n, window, limit)
		}
	}
	if saved < limit*seconds/4 {
		t.Errorf("%d calls decided in memory: the test shows nothing", saved)
	}
}
