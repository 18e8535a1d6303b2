package backend_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

const day = 24 * time.Hour

// start is a time in microseconds since 1970.
const start = 1_796_000_000_000_000

// settle decides a call of one take.
func settle(b *backend.Bucket, t backend.Take, now int64) backend.Decision {
	var dst [1]backend.Decision
	backend.Settle([]backend.Take{t}, []*backend.Bucket{b}, now, dst[:])
	return dst[0]
}

// TestNeverMoreThanTheBucket measures the charges of random calls with a leaky meter: over
// any time t at most burst + rate × t.
func TestNeverMoreThanTheBucket(t *testing.T) {
	for _, limit := range []backend.Limit{
		{Requests: 10, Period: time.Second, Burst: 10},
		{Requests: 7, Period: 3 * time.Second, Burst: 1},
		{Requests: 1, Period: day, Burst: 1000},
		{Requests: 1_000_000, Period: time.Second, Burst: 50},
		{Requests: 999_983, Period: time.Minute, Burst: 4_294_967_295},
	} {
		source := rand.New(rand.NewPCG(1, limit.Burst))
		refill := time.Duration(float64(limit.Period) / float64(limit.Requests)).Microseconds()
		var bucket backend.Bucket
		now, meter, sum, began := int64(start), 0.0, 0.0, int64(start)
		for range 20_000 {
			step := source.Int64N(refill*2 + 2)
			now += step
			meter = max(0, meter-float64(step)*float64(limit.Requests)/float64(limit.Period.Microseconds()))
			take := backend.Take{Limit: limit, Hits: uint64(source.Int64N(3))}
			if source.IntN(20) == 0 {
				take.Hits = uint64(source.Int64N(int64(limit.Burst + 2)))
			}
			got := settle(&bucket, take, now)
			meter += float64(got.Charged)
			sum += float64(got.Charged)
			if most := float64(limit.Burst); meter > most*(1+1e-12)+1e-6 {
				t.Fatalf("%+v: %v tokens more than burst and rate allow after %d µs", limit, meter-most, now-began)
			}
			if got.OK && got.Charged != take.Hits {
				t.Fatalf("%+v: charged %d of %d hits", limit, got.Charged, take.Hits)
			}
		}
		if sum < float64(limit.Burst)/10 && sum < 1000 {
			t.Errorf("%+v: %v tokens charged in all: the calls show nothing", limit, sum)
		}
	}
}

// TestNeverMoreInAPeriod has random calls of a sliding log: in any period at most the
// limit.
func TestNeverMoreInAPeriod(t *testing.T) {
	limit := backend.Limit{Algorithm: backend.SlidingLog, Requests: 20, Period: time.Second, Burst: 20}
	type charge struct{ at, hits int64 }
	source := rand.New(rand.NewPCG(6, 7))
	var bucket backend.Bucket
	var last []charge
	now, total := int64(start), int64(0)
	for range 20_000 {
		now += source.Int64N(60_000)
		got := settle(&bucket, backend.Take{Limit: limit, Hits: 1 + source.Uint64N(4)}, now)
		last = slices.DeleteFunc(last, func(c charge) bool { return c.at <= now-limit.Period.Microseconds() })
		last = append(last, charge{now, int64(got.Charged)})
		sum := int64(0)
		for _, c := range last {
			sum += c.hits
		}
		if sum > 20 || int64(got.Level) != 20-sum {
			t.Fatalf("%d tokens charged within a second and a level of %v, want 20 at most, and the rest", sum, got.Level)
		}
		total += int64(got.Charged)
	}
	if seconds := (now - start) / 1_000_000; total < 15*seconds {
		t.Errorf("%d tokens charged in %d seconds, want nearly 20 a second", total, seconds)
	}
}

// TestChangesMakeNoTokens lets the limit change at each call, as it does while old and new
// rules are in force side by side.
func TestChangesMakeNoTokens(t *testing.T) {
	source := rand.New(rand.NewPCG(2, 3))
	for round := range 500 {
		var bucket backend.Bucket
		sum, most := 0.0, 0.0
		for range 200 {
			capacity := 1 + source.Uint64N(1000)
			limit := backend.Limit{
				Algorithm: backend.Algorithm(round % 5), Requests: capacity, Period: 100 * 365 * day, Burst: capacity,
			}
			most = max(most, float64(capacity))
			hits := 1 + source.Uint64N(capacity)
			if source.IntN(3) > 0 {
				hits = 1
			}
			sum += float64(settle(&bucket, backend.Take{Limit: limit, Hits: hits}, start).Charged)
			if sum > most {
				t.Fatalf("algorithm %d: %v tokens charged of a bucket that never held more than %v", limit.Algorithm, sum, most)
			}
		}
	}
}

// TestExpiredEqualsFresh compares buckets at their end with ones that were never touched.
func TestExpiredEqualsFresh(t *testing.T) {
	source := rand.New(rand.NewPCG(4, 5))
	limits := []backend.Limit{
		{Requests: 10, Period: time.Second, Burst: 10},
		{Requests: 3, Period: 7 * time.Second, Burst: 20},
		{Requests: 1, Period: 365 * day, Burst: 2},
	}
	live := 0
	for round := range 10_000 {
		limit := limits[source.IntN(len(limits))]
		limit.Algorithm = backend.Algorithm(round % 5)
		var bucket backend.Bucket
		now := int64(start)
		for range 1 + source.IntN(5) {
			now += source.Int64N(3_000_000)
			settle(&bucket, backend.Take{
				Limit: limit, Hits: source.Uint64N(2 * limit.Burst),
				Give: source.Uint64N(2), Overflow: backend.Overflow(source.IntN(3)),
			}, now)
		}
		if bucket.Expires() == 0 {
			continue
		}
		live++
		end := backend.Take{Limit: limit, Hits: uint64(limit.Capacity()), Overflow: backend.Auto}
		at, fresh := bucket.Expires(), backend.Bucket{}
		got, want := settle(&bucket, end, at), settle(&fresh, end, at)
		if got != want {
			t.Fatalf("at the end of a bucket of algorithm %d: %+v, want %+v as of a fresh one", limit.Algorithm, got, want)
		}
	}
	if live < 5000 {
		t.Errorf("%d buckets of 10,000 were live: the test shows nothing", live)
	}
}

// TestAnotherAlgorithm has a bucket whose rule changed its algorithm and not its key.
func TestAnotherAlgorithm(t *testing.T) {
	limit := backend.Limit{Requests: 10, Period: time.Second, Burst: 10}
	for from := range backend.SlidingLog + 1 {
		for to := range backend.SlidingLog + 1 {
			var bucket backend.Bucket
			limit.Algorithm = from
			settle(&bucket, backend.Take{Limit: limit, Hits: 4}, start)
			limit.Algorithm = to
			want := 10.0
			if from == to {
				want = 6
			}
			if got := settle(&bucket, backend.Take{Limit: limit, Hits: 11}, start); got.Level != want {
				t.Errorf("algorithm %d after %d: a level of %v, want %v", to, from, got.Level, want)
			}
		}
	}
}

func TestDenied(t *testing.T) {
	type take struct {
		mode     backend.Mode
		ok, debt bool
	}
	f := func(want bool, takes ...take) {
		t.Helper()
		asked, decided := make([]backend.Take, len(takes)), make([]backend.Decision, len(takes))
		for i, take := range takes {
			asked[i].Mode = take.mode
			decided[i].OK, decided[i].Debt = take.ok, take.debt
		}
		if got := backend.Denied(asked, decided); got != want {
			t.Errorf("Denied(%+v) = %v, want %v", takes, got, want)
		}
	}
	f(false)
	f(false, take{backend.Enforce, true, false})
	f(true, take{backend.Enforce, false, false})
	f(true, take{backend.Enforce, true, false}, take{backend.Enforce, false, false})
	f(false, take{backend.Enforce, false, true})
	f(false, take{backend.Shadow, false, false})
	f(false, take{backend.Shadow, false, false}, take{backend.Enforce, true, false})
	f(true, take{backend.Quota, false, false})
	f(true, take{backend.Quota, false, false}, take{backend.Enforce, true, false})
	f(true, take{backend.Quota, false, false}, take{backend.Quota, false, false})
	f(false, take{backend.Quota, false, false}, take{backend.Quota, true, false})
	f(true, take{backend.Quota, true, false}, take{backend.Enforce, false, false})
	f(true, take{backend.Shadow, true, false}, take{backend.Quota, false, false})
}

func TestRemaining(t *testing.T) {
	for level, want := range map[float64]uint64{
		-4_294_967_295: 0, -0.5: 0, 0: 0, 0.999: 0, 1 - 1e-10: 1, 1: 1, 2.9: 2, 2.9999999995: 3,
		4_294_967_295: 4_294_967_295, 4_294_967_294.9999995: 4_294_967_295, 4_294_967_294.5: 4_294_967_294,
	} {
		if got := (&backend.Decision{Level: level}).Remaining(); got != want {
			t.Errorf("Remaining of level %v = %d, want %d", level, got, want)
		}
	}
}

// TestLongTimes has numbers at the ends of their ranges.
func TestLongTimes(t *testing.T) {
	limit := backend.Limit{Requests: 1, Period: math.MaxInt64, Burst: 4_294_967_295}
	var bucket backend.Bucket
	got := settle(&bucket, backend.Take{Limit: limit, Hits: 4_294_967_295}, start)
	if !got.OK || got.Full != backend.MaxIdle || bucket.Expires() != start+backend.MaxIdle.Microseconds() {
		t.Errorf("%+v until %d, want OK, and the longest life there is", got, bucket.Expires())
	}
	got = settle(&bucket, backend.Take{Limit: limit, Hits: math.MaxUint64, Overflow: backend.Debt}, start+1)
	if got.OK || got.Charged != 4_294_967_295 || got.Level != -4_294_967_295 || got.Wait != backend.MaxIdle {
		t.Errorf("%+v, want a debt of the capacity and the longest wait there is", got)
	}
	got = settle(&bucket, backend.Take{Limit: limit, Hits: 1}, start+1+backend.MaxIdle.Microseconds())
	if !got.OK || got.Level != 4_294_967_294 {
		t.Errorf("%+v after ten years, want a bucket that is full again", got)
	}
}

func TestSettleAllocations(t *testing.T) {
	for algorithm := range backend.SlidingLog + 1 {
		limit := backend.Limit{Algorithm: algorithm, Requests: 10, Period: time.Second, Burst: 10}
		takes, dst := []backend.Take{{Limit: limit, Hits: 1}, {Limit: limit, Hits: 20, Overflow: backend.Debt}}, make([]backend.Decision, 2)
		buckets, now := []*backend.Bucket{{}, {}}, int64(start)
		call := func() {
			now += 1000
			backend.Settle(takes, buckets, now, dst)
		}
		for range 1000 {
			call() // a log has grown to its size then
		}
		if n := testing.AllocsPerRun(1000, call); n != 0 {
			t.Errorf("algorithm %d: %v allocations, want 0", algorithm, n)
		}
	}
}
