package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/backend/storetest"
)

const day = 24 * time.Hour

func TestSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (backend.Store, func(time.Duration)) {
		t.Helper()
		return clocked(memstore.Options{})
	})
}

func TestSuiteOneShard(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (backend.Store, func(time.Duration)) {
		t.Helper()
		return clocked(memstore.Options{MaxBuckets: 120})
	})
}

// clocked returns a store and what moves its clock.
func clocked(o memstore.Options) (*memstore.Store, func(time.Duration)) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	o.Now = func() time.Time { return now }
	return memstore.New(o), func(d time.Duration) { now = now.Add(d) }
}

// perDay is a take of a bucket of so many tokens a day.
func perDay(key string, tokens, hits uint64) backend.Take {
	return backend.Take{Key: []byte(key), Limit: backend.Limit{Requests: tokens, Period: day, Burst: tokens}, Hits: hits}
}

func take(tb testing.TB, store backend.Store, takes ...backend.Take) []backend.Decision {
	tb.Helper()
	got := make([]backend.Decision, len(takes))
	if err := store.Take(tb.Context(), takes, got); err != nil {
		tb.Fatal(err)
	}
	return got
}

func TestFullBucketsAreDropped(t *testing.T) {
	store, advance := clocked(memstore.Options{})
	for i := range 1000 {
		take(t, store, perDay(fmt.Sprint("short", i), 1000, 1)) // full again after 86.4 s
		take(t, store, perDay(fmt.Sprint("look", i), 10, 0))
		take(t, store, perDay(fmt.Sprint("denied", i), 10, 11))
	}
	if n := store.Len(); n != 1000 {
		t.Errorf("Len() = %d, want 1000: a full bucket needs no room", n)
	}
	advance(90 * time.Second)
	for i := range 10_000 {
		take(t, store, perDay(fmt.Sprint("look", i), 10, 0))
	}
	if n := store.Len(); n != 0 {
		t.Errorf("Len() = %d after ten thousand calls, want 0", n)
	}
	if n := store.Evicted(); n != 0 {
		t.Errorf("Evicted() = %d, want 0: they were full", n)
	}
}

// R86: the number of buckets has a bound, and a full store still limits.
// TestBound lets far more clients come than there is room for. Those that were denied stay
// denied: their buckets are of more use than those that are nearly full.
func TestBound(t *testing.T) {
	const most = 10_000
	store, _ := clocked(memstore.Options{MaxBuckets: most})
	for i := range 500 {
		take(t, store, perDay(fmt.Sprint("drained", i), 100, 100))
	}
	for i := range 10 * most {
		if got := take(t, store, perDay(fmt.Sprint("passing", i), 100, 1))[0]; !got.OK {
			t.Fatalf("%+v for a new client", got)
		}
	}
	if n := store.Len(); n > most || n < most*9/10 {
		t.Errorf("Len() = %d, want nearly %d", n, most)
	}
	if n, least := store.Evicted(), uint64(9*most); n < least {
		t.Errorf("Evicted() = %d, want %d at least", n, least)
	}
	passed := 0
	for i := range 500 {
		if take(t, store, perDay(fmt.Sprint("drained", i), 100, 1))[0].OK {
			passed++
		}
	}
	if passed > 0 {
		t.Errorf("%d of 500 clients who had used their limit up pass again", passed)
	}
}

func TestTinyBound(t *testing.T) {
	store, _ := clocked(memstore.Options{MaxBuckets: 1})
	for i := range 10 {
		take(t, store, perDay(strconv.Itoa(i), 10, 1), perDay(fmt.Sprint("other", i), 10, 1))
	}
	if n := store.Len(); n != 1 {
		t.Errorf("Len() = %d, want 1", n)
	}
	store, _ = clocked(memstore.Options{MaxBuckets: 1})
	take(t, store, perDay("k", 10, 10))
	if take(t, store, perDay("k", 10, 1))[0].OK {
		t.Error("a store of one bucket has no limit")
	}
}

// Sliding logs take the more memory the more tokens are taken, and that has a bound too. Who
// uses its limit up stays denied nevertheless.
func TestBoundOfLogs(t *testing.T) {
	const most, tokens, clients = 2000, 1000, 300
	store, advance := clocked(memstore.Options{MaxBuckets: most})
	call := func(client int) bool {
		advance(time.Microsecond) // each token an entry of its own
		take1 := perDay(fmt.Sprint("client", client), tokens, 1)
		take1.Limit.Algorithm = backend.SlidingLog
		return take(t, store, take1)[0].OK
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for client := range clients {
		for n := range tokens {
			if !call(client) {
				t.Fatalf("token %d of client %d was denied", n, client)
			}
		}
		if call(client) {
			t.Fatalf("client %d had more tokens than its limit", client)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if bytes, bound := int(after.HeapAlloc-before.HeapAlloc), most*300; bytes > bound {
		t.Errorf("the logs of %d clients take %d bytes, want %d at most: as many as %d buckets", clients, bytes, bound, most)
	}
	if store.Evicted() == 0 || store.Len() < 5 {
		t.Errorf("Evicted() = %d and Len() = %d, want that some had to go and not all", store.Evicted(), store.Len())
	}
}

// A log that is larger than the whole store is kept, for its client would have no limit
// without.
func TestALogLargerThanTheBound(t *testing.T) {
	store, advance := clocked(memstore.Options{MaxBuckets: 10})
	passed := 0
	for range 2000 {
		advance(time.Microsecond)
		one := perDay("k", 1000, 1)
		one.Limit.Algorithm = backend.SlidingLog
		if take(t, store, one)[0].OK {
			passed++
		}
	}
	if passed != 1000 {
		t.Errorf("%d calls passed, want 1000", passed)
	}
}

// TestWallClockSetBack uses the real clock, whose monotonic reading counts.
func TestWallClockSetBack(t *testing.T) {
	start, calls := time.Now(), 0
	store := memstore.New(memstore.Options{Now: func() time.Time {
		calls++
		return start.Add(time.Duration(calls) * time.Second)
	}})
	limit := backend.Limit{Requests: 1, Period: time.Second, Burst: 1}
	for range 5 {
		if got := take(t, store, backend.Take{Key: []byte("k"), Limit: limit, Hits: 1})[0]; !got.OK {
			t.Errorf("%+v, a second after the last", got)
		}
	}
}

// TestManyBucketsAtOnce has calls that lock the same shards in other orders.
func TestManyBucketsAtOnce(t *testing.T) {
	store := memstore.New(memstore.Options{})
	var callers sync.WaitGroup
	var mu sync.Mutex
	charged := map[string]uint64{}
	for caller := range 8 {
		callers.Go(func() {
			source := rand.New(rand.NewPCG(uint64(caller), 1))
			for range 500 {
				var takes []backend.Take
				for _, n := range source.Perm(20)[:1+source.IntN(12)] {
					takes = append(takes, perDay(strconv.Itoa(n), 500, 1))
				}
				got := take(t, store, takes...)
				mu.Lock()
				for i := range got {
					charged[string(takes[i].Key)] += got[i].Charged
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	for key, n := range charged {
		level := take(t, store, perDay(key, 500, 0))[0].Level
		if n > 500 || uint64(level+0.5) != 500-n {
			t.Errorf("bucket %s: %d charged and a level of %v, want a sum of 500", key, n, level)
		}
	}
}

func TestTakeAllocations(t *testing.T) {
	store := memstore.New(memstore.Options{})
	one := []backend.Take{perDay("k", 1<<32-1, 1)}
	four := []backend.Take{perDay("k", 1<<32-1, 1), perDay("l", 1<<32-1, 1), perDay("m", 1<<32-1, 1), perDay("n", 1<<32-1, 1)}
	dst := make([]backend.Decision, 4)
	for _, takes := range [][]backend.Take{one, four} {
		got := testing.AllocsPerRun(1000, func() {
			if err := store.Take(t.Context(), takes, dst[:len(takes)]); err != nil {
				t.Error(err)
			}
		})
		if got != 0 {
			t.Errorf("%v allocations for a call of %d known buckets, want 0", got, len(takes))
		}
	}
}

// TestMemory holds the store to the bytes for each bucket that Options states.
func TestMemory(t *testing.T) {
	const buckets = 200_000
	store := memstore.New(memstore.Options{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range buckets {
		take(t, store, perDay(fmt.Sprintf("{4:edge}:%020d", i), 10, 10)) // 29 bytes
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if store.Len() != buckets {
		t.Fatalf("Len() = %d, want %d", store.Len(), buckets)
	}
	if got := int(after.HeapAlloc-before.HeapAlloc) / buckets; got < 100 || got > 250+32 {
		t.Errorf("%d bytes for each bucket, want about 250 and its key", got)
	}
}

func BenchmarkTake(b *testing.B) {
	for _, bench := range []struct {
		name    string
		keys    int
		tokens  uint64
		denials bool
	}{
		{"hot", 1, 1<<32 - 1, false},
		{"hot/denied", 1, 1, true},
		{"keys=100000", 100_000, 1<<32 - 1, false},
	} {
		b.Run(bench.name, func(b *testing.B) {
			store := memstore.New(memstore.Options{})
			keys := make([][]byte, bench.keys)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "{4:edge7:api_key%d}:bucket", i)
			}
			call := perDay(string(keys[0]), bench.tokens, 1)
			call.Limit.Requests = 1 // or they would be full again, and dropped
			for _, call.Key = range keys {
				take(b, store, call)
			}
			if store.Len() != bench.keys {
				b.Fatalf("%d buckets, want %d", store.Len(), bench.keys)
			}
			if got := take(b, store, call)[0]; got.OK == bench.denials {
				b.Fatalf("%+v, want denied %v", got, bench.denials)
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				source := rand.New(rand.NewPCG(rand.Uint64(), 1))
				takes, dst := []backend.Take{call}, make([]backend.Decision, 1)
				for pb.Next() {
					takes[0].Key = keys[source.IntN(len(keys))]
					if err := store.Take(b.Context(), takes, dst); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
