package prefetch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/backend/prefetch"
)

// near is a store at no distance that counts, and can be made to fail.
type near struct {
	backend.Store
	mu    sync.Mutex
	calls int
	// fails says what becomes of a call: whether it reaches the store, and whether its answer
	// comes back. Nil: both.
	fails func() (arrives, answered bool)
	// lasts is how long a call lasts.
	lasts time.Duration
	// stands makes the answers those of something that stands in for the store.
	stands bool
}

var errLost = errors.New("lost")

func (n *near) Take(ctx context.Context, asked []backend.Take, dst []backend.Decision) error {
	n.mu.Lock()
	n.calls++
	arrives, answered := true, true
	if n.fails != nil {
		arrives, answered = n.fails()
	}
	stands, lasts := n.stands, n.lasts
	n.mu.Unlock()
	time.Sleep(lasts)
	if stands {
		for i := range dst {
			dst[i] = backend.Decision{OK: asked[i].Hits == 1, Charged: asked[i].Hits, Source: backend.LocalShare}
		}
		return nil
	}
	if arrives {
		copied := slices.Clone(asked)
		for i := range copied {
			if !answered && copied[i].Lease != nil {
				copied[i].Lease = new(*copied[i].Lease)
			}
		}
		if err := n.Store.Take(ctx, copied, dst); err != nil {
			return err
		}
	}
	if !arrives || !answered {
		return errLost
	}
	return nil
}

func (n *near) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls
}

// bench is a Store in a bubble.
type bench struct {
	*testing.T
	near  *near
	store *prefetch.Store
	// direct is the buckets themselves.
	direct *memstore.Store
	end    func()
}

// bubble runs a test in a bubble of time.
func bubble(t *testing.T, o prefetch.Options, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, direct: memstore.New(memstore.Options{})}
		b.near = &near{Store: b.direct}
		b.store = prefetch.New(b.near, o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.store.Run(ctx) }()
		b.end = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		defer b.end()
		test(b)
	})
}

func charge(key string, limit backend.Limit, hits uint64) backend.Take {
	return backend.Take{Key: []byte(key), Limit: limit, Hits: hits}
}

func (b *bench) call(takes ...backend.Take) []backend.Decision {
	b.Helper()
	got := make([]backend.Decision, len(takes))
	if err := b.store.Take(b.Context(), takes, got); err != nil {
		b.Fatalf("Take(%+v): %v", takes, err)
	}
	return got
}

// level is what the bucket itself has.
func (b *bench) level(key string, limit backend.Limit) float64 {
	b.Helper()
	var got [1]backend.Decision
	if err := b.direct.Take(b.Context(), []backend.Take{{Key: []byte(key), Limit: limit}}, got[:]); err != nil {
		b.Fatal(err)
	}
	return got[0].Level
}

// heat makes a key hot: so many calls, one each millisecond.
func (b *bench) heat(key string, limit backend.Limit, calls int) {
	b.Helper()
	for range calls {
		if got := b.call(charge(key, limit, 1))[0]; !got.OK {
			b.Fatalf("%+v while the key is made hot", got)
		}
		time.Sleep(time.Millisecond)
	}
	synctest.Wait()
	if b.store.Held() == 0 {
		b.Fatal("no lease after all these calls")
	}
}

var hour = backend.Limit{Requests: 10_000, Period: time.Hour, Burst: 10_000}

func TestMostCallsNeedNoStore(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		limit := perSecond(1_000_000, 1_000_000)
		b.heat("k", limit, 20_000)
		if n := b.near.count(); n > 40 {
			t.Errorf("%d calls to the store for 20,000, want 40 at most", n)
		}
		_, saved, _, waits := b.store.Counts()
		if saved < 19_900 || waits > 10 {
			t.Errorf("%d decided in memory and %d waited, want nearly all and nearly none", saved, waits)
		}
	})
}

func TestRemainingCountsDown(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		for want := uint64(9999); want > 7000; want-- {
			got := b.call(charge("k", hour, 1))[0]
			if left := got.Remaining(); left != want && left != want+1 { // one comes back every 0.36 s
				t.Fatalf("%d remaining, want %d or one more", left, want)
			}
			if want%100 == 0 {
				time.Sleep(time.Millisecond)
			}
			if left := got.Remaining(); left == want+1 {
				want++
			}
		}
	})
}

func TestRemainingIsNoMoreThanTheCapacity(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		limit := perSecond(1000, 1000)
		for range 50 {
			if got := b.call(charge("k", limit, 1))[0]; got.Remaining() > 999 || got.Remaining() < 990 {
				t.Fatalf("%+v of 1000", got)
			}
			time.Sleep(10 * time.Millisecond)
			for _, overflow := range []backend.Overflow{backend.Reject, backend.Auto} {
				look := backend.Take{Key: []byte("k"), Limit: limit, Overflow: overflow}
				if got := b.call(look)[0]; got.Remaining() != 1000 {
					t.Fatalf("look: %+v, want 1000 left", got)
				}
			}
		}
	})
}

func TestDeniedInMemory(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		small := backend.Limit{Requests: 10, Period: time.Minute, Burst: 10}
		b.call(charge("k", small, 3))
		b.call(charge("k", small, 4)) // a key that is asked for once is not remembered
		f := func(hits uint64, ok bool, wait time.Duration, asks int) {
			t.Helper()
			before := b.near.count()
			got := b.call(charge("k", small, hits))[0]
			if n := b.near.count() - before; got.OK != ok || got.Wait != wait || asks >= 0 && n != asks {
				t.Errorf("%d hits: OK %v, wait %v and %d calls to the store, want %v, %v and %d", hits, got.OK, got.Wait, b.near.count()-before, ok, wait, asks)
			}
		}
		const s = time.Second
		f(4, false, 6*s, 0) // the answer to the first said that 3 are left
		f(5, false, 12*s, 0)
		f(3, true, 0, 1) // so these are there
		f(1, false, 6*s, 0)
		time.Sleep(s)
		f(1, false, 5*s, 1) // what the store said is a second old: another may have given back
		time.Sleep(5 * s)
		f(1, true, 0, 1)
		f(11, false, 60*s, -1) // never; the time to full. The key may have been forgotten meanwhile
		f(11, false, 60*s, 0)
		b.call(backend.Take{Key: []byte("k"), Limit: small, Give: 5})
		f(5, true, 0, 1) // a refund is known at once
	})
}

func TestUnusedTokensGoBack(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		b.heat("k", hour, 300)
		time.Sleep(backend.LeaseLife)
		synctest.Wait()
		if held := b.store.Held(); held != 0 {
			t.Errorf("%d tokens held by a key that cooled", held)
		}
		if got := b.level("k", hour); got < 9700 || got > 9720 {
			t.Errorf("level %v after 300 of 10,000, want them back", got)
		}
		time.Sleep(time.Minute)
		if n := b.store.Entries(); n != 0 {
			t.Errorf("%d entries left of keys that nobody asks for", n)
		}
	})
}

func TestEndGivesAllBack(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		for i := range 50 {
			b.heat(fmt.Sprint("k", i), hour, 30)
		}
		held := b.store.Held()
		b.end()
		if b.store.Held() != 0 {
			t.Errorf("%d of %d tokens held after the end", b.store.Held(), held)
		}
		if got := b.level("k49", hour); got < 9970 {
			t.Errorf("level %v after 30 of 10,000, want 9970", got)
		}
		if got := b.call(charge("k49", hour, 1))[0]; !got.OK || b.store.Held() != 0 {
			t.Errorf("%+v and %d held after the end, want the store's answer", got, b.store.Held())
		}
	})
}

// TestCrash has an instance that never says what became of its tokens.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		limit := perSecond(1000, 1000)
		crashed := prefetch.New(shared, prefetch.Options{}) // and nobody runs it
		b := &bench{T: t, store: crashed, direct: shared}
		for range 500 {
			b.call(charge("k", limit, 1))
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if held := crashed.Held(); held == 0 || held > 50 {
			t.Errorf("%d tokens held by one instance, want some and 5 %% of the capacity at most", held)
		}
		time.Sleep(time.Second)
		if got := b.level("k", limit); got < 950 || got == 1000 {
			t.Errorf("level %v while tokens are out, want 950 at least, and less than all", got)
		}
		time.Sleep(2*backend.LeaseLife - time.Second)
		if got := b.level("k", limit); got != 1000 {
			t.Errorf("level %v two generations later, want 1000", got)
		}
	})
}

func TestChangedLimit(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		low, high := backend.Limit{Requests: 100, Period: time.Hour, Burst: 100}, backend.Limit{Requests: 20_000, Period: time.Hour, Burst: 20_000}
		b.heat("k", hour, 1000)
		if got := b.call(charge("k", low, 101))[0]; got.OK {
			t.Errorf("%+v for 101 of a limit that was lowered to 100", got)
		}
		passed := 0
		for range 300 {
			if b.call(charge("k", low, 1))[0].OK {
				passed++
			}
		}
		if passed > 100 {
			t.Errorf("%d passed a limit that was lowered to 100", passed)
		}
		if got := b.call(charge("k", high, 9000))[0]; !got.OK {
			t.Errorf("%+v for 9000 of a limit that was raised by 10,000", got)
		}
	})
}

// TestSeveralTakes has a hot tenant and a route that is used up.
func TestSeveralTakes(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		route := backend.Limit{Requests: 10, Period: time.Hour, Burst: 10}
		b.heat("{t}tenant", hour, 500)
		passed := 0
		for range 1000 {
			got := b.call(charge("{t}tenant", hour, 1), charge("{t}route", route, 1))
			if !got[0].OK {
				t.Fatalf("%+v for the tenant, who has enough", got[0])
			}
			if got[1].OK {
				passed++
			} else if got[0].Charged != 0 {
				t.Fatalf("%d charged in a denied call", got[0].Charged)
			}
			time.Sleep(time.Millisecond)
		}
		if passed != 10 {
			t.Errorf("%d calls passed, want the route's 10", passed)
		}
		if n := b.near.count(); n > 100 {
			t.Errorf("%d calls to the store", n)
		}
		b.end()
		if got := b.level("{t}tenant", hour); math.Abs(got-(9490+1.5*10/3.6)) > 5 {
			t.Errorf("level %v of the tenant, want about 9490: 500 alone and 10 with the route", got)
		}
	})
}

func TestQuotaAndShadowBesideLeases(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		b.heat("a", hour, 200)
		gone := backend.Limit{Requests: 1, Period: time.Hour, Burst: 1}
		b.call(charge("gone", gone, 1))
		f := func(mode, other backend.Mode, denied bool) {
			t.Helper()
			takes := []backend.Take{charge("a", hour, 1), charge("gone", gone, 1), charge("cold", hour, 1)}
			takes[0].Mode, takes[1].Mode = mode, other
			got := b.call(takes...)
			if backend.Denied(takes, got) != denied || !got[0].OK || got[1].OK || !got[2].OK {
				t.Errorf("modes %d and %d: %+v, want denied %v", mode, other, got, denied)
			}
			want := uint64(1)
			if denied {
				want = 0
			}
			if got[0].Charged != want || got[1].Charged != 0 || got[2].Charged != want {
				t.Errorf("modes %d and %d: charged %d, %d, %d", mode, other, got[0].Charged, got[1].Charged, got[2].Charged)
			}
		}
		for range 3 {
			f(backend.Enforce, backend.Shadow, false)
			f(backend.Quota, backend.Quota, false) // one of them is paid
			f(backend.Enforce, backend.Quota, true)
			f(backend.Enforce, backend.Enforce, true)
			time.Sleep(2 * time.Second)
		}
	})
}

func TestLooksAndDebtsOnALease(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		b.heat("k", hour, 200)
		for _, overflow := range []backend.Overflow{backend.Reject, backend.Auto} {
			look := backend.Take{Key: []byte("k"), Limit: hour, Overflow: overflow}
			if got := b.call(look)[0]; !got.OK || got.Charged != 0 || got.Remaining() < 9800 || got.Remaining() > 9801 {
				t.Errorf("look %+v, want 9800 left", got)
			}
		}
		debt := charge("k", hour, 15_000)
		debt.Overflow = backend.Auto
		if got := b.call(debt)[0]; !got.OK || !got.Debt || got.Charged != 15_000 || math.Abs(got.Level+5199) > 2 {
			t.Errorf("debt %+v, want 15,000 charged and 5,200 owed", got)
		}
		if got := b.call(charge("k", hour, 1))[0]; got.OK {
			t.Errorf("%+v while a debt is owed", got)
		}
		refund := backend.Take{Key: []byte("k"), Limit: hour, Give: 6000}
		if got := b.call(refund)[0]; !got.OK || math.Abs(got.Level-801) > 2 {
			t.Errorf("refund %+v, want 800 left", got)
		}
		if got := b.call(charge("k", hour, 700))[0]; !got.OK {
			t.Errorf("%+v after a refund", got)
		}
	})
}

func TestCostAboveTheLease(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		b.heat("k", hour, 100)
		if got := b.call(charge("k", hour, 9899))[0]; !got.OK {
			t.Errorf("%+v for all that is left, part of it in the lease", got)
		}
	})
}

func TestWaitingCallsShareAnAsk(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		limit := perSecond(100, 1000)
		b.heat("k", limit, 5)
		b.call(charge("k", limit, 900)) // more than the lease
		time.Sleep(backend.LeaseLife)   // and it goes back
		synctest.Wait()
		b.call(charge("k", limit, 400))
		before := b.near.count()
		b.near.lasts = time.Millisecond
		var waiting sync.WaitGroup
		for range 200 {
			waiting.Go(func() { b.call(charge("k", limit, 1)) })
		}
		waiting.Wait()
		if n := b.near.count() - before; n > 10 {
			t.Errorf("%d calls to the store for 200 at once, want 10 at most", n)
		}
	})
}

// TestNoLease has takes that ask for the store's own answer, and algorithms that never lease.
func TestNoLease(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		off := charge("off", hour, 1)
		off.NoLease = true
		window := charge("window", hour, 1)
		window.Limit.Algorithm = backend.SlidingWindow
		const calls = 100
		for range calls {
			b.call(off)
			b.call(window)
			b.call(off, window)
		}
		if n := b.near.count(); n != 3*calls || b.store.Entries() != 0 {
			t.Errorf("%d calls to the store and %d entries for %d calls", n, b.store.Entries(), 3*calls)
		}
	})
}

// TestCostsOfTheirOwnLeaseNothing has charges that may become debts, which memory never
// decides.
func TestCostsOfTheirOwnLeaseNothing(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		for range 500 {
			cost := charge("k", hour, 3)
			cost.Overflow = backend.Auto
			b.call(cost)
			time.Sleep(time.Millisecond)
		}
		if held, asks := b.store.Held(), b.near.count(); held != 0 || asks != 500 {
			t.Errorf("%d tokens held and %d calls to the store, want none and 500", held, asks)
		}
	})
}

func TestStandIn(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		b.heat("k", hour, 100)
		b.near.stands = true
		held := b.store.Held()
		for range int(held) + 50 { // to the end of the lease, and on with what stands in
			if got := b.call(charge("k", hour, 1))[0]; !got.OK {
				t.Fatalf("%+v", got)
			}
			synctest.Wait()
		}
		if b.store.Held() != 0 {
			t.Error("what stands in for the store gave a lease")
		}
		if got := b.call(charge("k", hour, 2))[0]; got.OK || got.Source != backend.LocalShare {
			t.Errorf("%+v, want what stands in to decide", got)
		}
		b.near.stands = false
		b.heat("k", hour, 300)
	})
}

func TestErrorsAreTheStores(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		b.near.fails = func() (bool, bool) { return false, false }
		for range 20 {
			var dst [1]backend.Decision
			if err := b.store.Take(b.Context(), []backend.Take{charge("k", hour, 1)}, dst[:]); !errors.Is(err, errLost) {
				t.Errorf("Take() = %v, want %v", err, errLost)
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// TestLostMessages loses asks and answers of four instances, and never admits too much.
func TestLostMessages(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			luck := rand.New(rand.NewPCG(seed, 8))
			shared := &near{Store: memstore.New(memstore.Options{}), fails: func() (bool, bool) {
				n := luck.IntN(10)
				return n > 0, n > 1
			}}
			limit := perSecond(2000, 2000)
			m := &meter{limit: limit, at: time.Now()}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			var stores []*prefetch.Store
			for range 4 {
				s := prefetch.New(shared, prefetch.Options{})
				stores = append(stores, s)
				running.Go(func() { _ = s.Run(ctx) })
			}
			for range 8000 {
				var dst [1]backend.Decision
				n := 1 + random.Uint64N(5)
				m.ask(n)
				if err := stores[random.IntN(4)].Take(ctx, []backend.Take{charge("k", limit, n)}, dst[:]); err == nil && dst[0].OK {
					m.admit(n)
				}
				time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
			}
			cancel()
			running.Wait()
			result{meter: m, requests: 1}.check(t)
			if m.admitted < m.exact/2 {
				t.Errorf("%v of %v admitted", m.admitted, m.exact)
			}
		})
	}
}

func TestAKeyThatComesOnceIsNotRemembered(t *testing.T) {
	bubble(t, prefetch.Options{}, func(b *bench) {
		f := func(key string, want int) {
			t.Helper()
			b.call(charge(key, hour, 1))
			if n := b.store.Entries(); n != want {
				t.Errorf("%d entries after %q, want %d", n, key, want)
			}
		}
		for i := range 1000 {
			f(fmt.Sprint("k", i), 0)
		}
		time.Sleep(time.Second)
		f("k0", 0)
		time.Sleep(100 * time.Millisecond)
		f("k0", 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := b.store.Entries(); n != 0 {
			t.Errorf("%d entries of a key that is asked for no more", n)
		}
	})
}

func TestBoundedTable(t *testing.T) {
	bubble(t, prefetch.Options{MaxEntries: 100}, func(b *bench) {
		for i := range 1000 {
			for range 2 {
				if got := b.call(charge(fmt.Sprint("k", i), hour, 1))[0]; !got.OK {
					t.Fatalf("%+v for a new key", got)
				}
			}
		}
		if n := b.store.Entries(); n != 100 {
			t.Errorf("%d entries, want 100", n)
		}
		if got := b.call(charge("k999", hour, 9998), charge("k0", hour, 1)); !got[0].OK {
			t.Errorf("%+v for a key without an entry", got[0])
		}
		if got := b.call(charge("k999", hour, 1), charge("k0", hour, 1)); got[0].OK {
			t.Errorf("%+v for a key without an entry and without a token", got[0])
		}
	})
}

// TestMemoryOfAKey bounds what a key costs whose calls are cold.
func TestMemoryOfAKey(t *testing.T) {
	const keys, most = 100_000, 350
	store := prefetch.New(nothing{}, prefetch.Options{})
	bytes := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools keep is gone after two
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := bytes()
	var dst [1]backend.Decision
	for i := range keys {
		for range 2 { // a key that is asked for once is not remembered
			if err := store.Take(t.Context(), []backend.Take{charge(fmt.Sprintf("{4:edge7:api_key7:k%06d}5:route12:POST /orders", i), hour, 1)}, dst[:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := store.Entries(); n != keys {
		t.Fatalf("%d entries for %d keys", n, keys)
	}
	if each := (bytes() - before) / keys; each > most {
		t.Errorf("%d bytes a key, want %d at most", each, most)
	} else {
		t.Logf("%d bytes a key", each)
	}
	runtime.KeepAlive(store)
}

// nothing is a store of full buckets.
type nothing struct{}

func (nothing) Take(_ context.Context, takes []backend.Take, dst []backend.Decision) error {
	for i := range takes {
		dst[i] = backend.Decision{OK: true, Charged: takes[i].Hits, Level: 9999}
	}
	return nil
}

func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &remote{Store: memstore.New(memstore.Options{}), random: rand.New(rand.NewPCG(1, 1))}
		store := prefetch.New(slow, prefetch.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- store.Run(ctx) }()
		left := 0
		for range 2000 {
			short, cancel := context.WithTimeout(ctx, 400*time.Microsecond)
			var dst [1]backend.Decision
			if store.Take(short, []backend.Take{charge("k", perSecond(100, 100), 1)}, dst[:]) != nil {
				left++
			}
			cancel()
			time.Sleep(time.Millisecond)
		}
		if left == 0 {
			t.Error("no caller had to leave")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestLeasedTakeAllocatesNothing(t *testing.T) {
	store, takes, dst := leased(t)
	if n := testing.AllocsPerRun(10_000, func() {
		if err := store.Take(t.Context(), takes, dst); err != nil || !dst[0].OK {
			t.Fatal(dst[0], err)
		}
	}); n > 0.01 {
		t.Errorf("%v allocations a call, want none but those of a rare ask", n)
	}
}

// leased is a store with a key that is hot.
func leased(tb testing.TB) (*prefetch.Store, []backend.Take, []backend.Decision) {
	tb.Helper()
	store := prefetch.New(memstore.New(memstore.Options{}), prefetch.Options{})
	takes, dst := []backend.Take{charge("{4:edge}key", perSecond(4_000_000_000, 4_000_000_000), 1)}, make([]backend.Decision, 1)
	for range 10_000 {
		if err := store.Take(tb.Context(), takes, dst); err != nil || !dst[0].OK {
			tb.Fatal(dst[0], err)
		}
	}
	if store.Held() == 0 {
		tb.Fatal("no lease")
	}
	return store, takes, dst
}

func BenchmarkTake(b *testing.B) {
	b.Run("leased", func(b *testing.B) {
		store, takes, _ := leased(b)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			dst := make([]backend.Decision, 1)
			for pb.Next() {
				if err := store.Take(b.Context(), takes, dst); err != nil || !dst[0].OK {
					b.Error(dst[0], err)
				}
			}
		})
		asks, saved, _, _ := store.Counts()
		if saved < uint64(b.N)/2 {
			b.Errorf("%d of %d calls decided in memory", saved, b.N)
		}
		b.ReportMetric(float64(asks)/float64(b.N+10_000), "asks/op")
	})
	b.Run("denied", func(b *testing.B) {
		store := prefetch.New(memstore.New(memstore.Options{}), prefetch.Options{})
		takes := []backend.Take{charge("k", backend.Limit{Requests: 1, Period: time.Hour, Burst: 1}, 1)}
		dst := make([]backend.Decision, 1)
		for range 3 {
			if err := store.Take(b.Context(), takes, dst); err != nil {
				b.Fatal(err)
			}
		}
		if dst[0].OK {
			b.Fatal("nothing is denied")
		}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			dst := make([]backend.Decision, 1)
			for pb.Next() {
				if err := store.Take(b.Context(), takes, dst); err != nil || dst[0].OK {
					b.Error(dst[0], err)
				}
			}
		})
	})
}
