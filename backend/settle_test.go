package backend_test

import (
	"math"
	"math/rand/v2"
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

// TestChangesMakeNoTokens lets the limit change at each call, as it does while old and new
// rules are in force side by side.
func TestChangesMakeNoTokens(t *testing.T) {
	source := rand.New(rand.NewPCG(2, 3))
	for range 200 {
		var bucket backend.Bucket
		sum, most := 0.0, 0.0
		for range 500 {
			limit := backend.Limit{Requests: 1, Period: 3650 * day, Burst: 1 + source.Uint64N(1000)}
			most = max(most, float64(limit.Burst))
			hits := 1 + source.Uint64N(limit.Burst)
			if source.IntN(3) > 0 {
				hits = 1
			}
			sum += float64(settle(&bucket, backend.Take{Limit: limit, Hits: hits}, start).Charged)
			if sum > most {
				t.Fatalf("%v tokens charged of a bucket that never held more than %v", sum, most)
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
	for range 5000 {
		var bucket backend.Bucket
		now, limit := int64(start), limits[source.IntN(len(limits))]
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
		end := backend.Take{Limit: limit, Hits: limit.Burst, Overflow: backend.Auto}
		at, fresh := bucket.Expires(), backend.Bucket{}
		got, want := settle(&bucket, end, at), settle(&fresh, end, at)
		if got != want {
			t.Fatalf("at the end of a bucket: %+v, want %+v as of a fresh one", got, want)
		}
	}
	if live < 1000 {
		t.Errorf("%d buckets of 5000 were live: the test shows nothing", live)
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
	limit := backend.Limit{Requests: 10, Period: time.Second, Burst: 10}
	takes, dst := []backend.Take{{Limit: limit, Hits: 1}, {Limit: limit, Hits: 20, Overflow: backend.Debt}}, make([]backend.Decision, 2)
	buckets, now := []*backend.Bucket{{}, {}}, int64(start)
	if n := testing.AllocsPerRun(1000, func() {
		now += 1000
		backend.Settle(takes, buckets, now, dst)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
