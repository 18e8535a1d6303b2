package backend_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// holder is an instance in a test: what it may spend, and until when.
type holder struct {
	tokens     uint64
	expires    int64
	counted    uint64
	generation int64
}

// spendable is what it may spend at now.
func (h *holder) spendable(now int64) float64 {
	if now >= h.expires {
		return 0
	}
	return float64(h.tokens)
}

// ledger is a bucket with all its holders, and messages on their way.
type ledger struct {
	*testing.T
	random  *rand.Rand
	now     int64
	limit   backend.Limit
	bucket  backend.Bucket
	holders [4]holder
	late    []func()
	// meter is a leaky counter of what was admitted: over any time at most burst + rate × t.
	meter, admitted float64
	metered         int64
}

// TestLevelAndLeases plays instances that ask, spend, crash, and whose messages are lost or
// late, while the limit changes. After each step, the tokens in the bucket and those that
// instances may still spend are at most the capacity.
func TestLevelAndLeases(t *testing.T) {
	for seed := range uint64(60) {
		l := &ledger{T: t, random: rand.New(rand.NewPCG(seed, 5)), now: start, metered: start}
		l.limit = l.anyLimit()
		for step := range 2000 {
			l.step(seed%3 == 0)
			out := 0.0
			for i := range l.holders {
				out += l.holders[i].spendable(l.now)
			}
			level := settle(&l.bucket, backend.Take{Limit: l.limit}, l.now).Level
			if sum, most := max(level, 0)+out, float64(l.limit.Burst); sum > most+1e-6 {
				t.Fatalf("seed %d step %d: level %v and leases of %v are more than the capacity %v", seed, step, level, out, most)
			}
			if seed%3 != 0 && l.meter > float64(l.limit.Burst)+1e-6 {
				t.Fatalf("seed %d step %d: %v tokens admitted beyond burst and rate", seed, step, l.meter-float64(l.limit.Burst))
			}
		}
		if l.admitted < float64(l.limit.Burst)/2 {
			t.Errorf("seed %d: %v tokens admitted: the steps show nothing", seed, l.admitted)
		}
	}
}

func (l *ledger) anyLimit() backend.Limit {
	burst := []uint64{20, 100, 1000, 10_000}[l.random.IntN(4)]
	return backend.Limit{Requests: 1 + burst/uint64(1+l.random.IntN(20)), Period: time.Second, Burst: burst}
}

// step is one thing that happens.
func (l *ledger) step(changing bool) {
	l.now += []int64{0, 100, 1000, 50_000, 1_500_000, 5_000_000}[min(l.random.IntN(8), 5)]
	h := &l.holders[l.random.IntN(len(l.holders))]
	switch l.random.IntN(12) {
	case 0:
		if changing {
			l.limit = l.anyLimit()
			for i := range l.holders { // each sees the new rule, and gives back at its next ask
				l.holders[i].expires = 0
			}
		}
	case 1: // a crash: nobody spends these any more, and a new instance begins
		*h = holder{}
	case 2:
		if n := len(l.late); n > 0 {
			l.late[0]()
			l.late = l.late[1:]
		}
	case 3, 4, 5:
		if n := l.random.Uint64N(30 + l.limit.Burst/20); l.now < h.expires && n <= h.tokens {
			h.tokens -= n
			l.admit(float64(n))
		}
	default:
		l.ask(h)
	}
}

// ask sends an ask of a holder, whose answer may be lost, or which arrives late.
func (l *ledger) ask(h *holder) {
	lease := &backend.Lease{
		Want: uint64(l.random.IntN(2000)), Counted: h.counted, Generation: h.generation,
		Fraction: 0.3 * l.random.Float64(), Scarce: float64(l.limit.Burst / 20), Demand: float64(l.random.IntN(50)), Asked: uint64(l.random.IntN(50)),
	}
	if l.now < h.expires && l.random.IntN(2) == 0 {
		lease.Held = h.tokens
	} else {
		lease.Back, h.tokens = h.tokens, 0
	}
	take := backend.Take{Limit: l.limit, Lease: lease}
	switch l.random.IntN(4) {
	case 0:
		take.Hits = l.random.Uint64N(6 + l.limit.Burst/20)
	case 1:
		take.Hits, lease.Calls = 1+uint64(l.random.IntN(3)), uint64(l.random.IntN(9))
	}
	sent := l.now
	switch l.random.IntN(8) {
	case 0: // never arrives
		h.counted = 0
	case 1: // arrives late, when the answer is not waited for any more
		h.counted = 0
		l.late = append(l.late, func() { settle(&l.bucket, take, l.now) })
	case 2: // arrives, and its answer is lost
		settle(&l.bucket, take, l.now)
		h.counted = 0
	default:
		l.admit(float64(settle(&l.bucket, take, l.now).Charged))
		h.counted, h.generation = lease.Counted, lease.Generation
		h.tokens += lease.Granted
		h.expires = sent + backend.LeaseLife.Microseconds()
	}
}

func (l *ledger) admit(n float64) {
	l.meter = max(0, l.meter-float64(l.now-l.metered)*float64(l.limit.Requests)/float64(l.limit.Period.Microseconds()))
	l.meter += n
	l.admitted += n
	l.metered = l.now
}

// TestLeaseTimeline is the life of a lease by numbers.
func TestLeaseTimeline(t *testing.T) {
	limit := backend.Limit{Requests: 1000, Period: time.Second, Burst: 1000}
	var b backend.Bucket
	now := int64(start) / backend.LeaseLife.Microseconds() * backend.LeaseLife.Microseconds()
	f := func(at time.Duration, hits uint64, lease backend.Lease, level float64, granted uint64) backend.Lease {
		t.Helper()
		lease.Fraction = 0.2
		got := settle(&b, backend.Take{Limit: limit, Hits: hits, Lease: &lease}, now+at.Microseconds())
		if math.Abs(got.Level-level) > 1e-6 || lease.Granted != granted {
			t.Errorf("at %v: level %v and %d granted, want %v and %d", at, got.Level, lease.Granted, level, granted)
		}
		return lease
	}
	const ms, s = time.Millisecond, time.Second
	got := f(0, 1, backend.Lease{Want: 500}, 950, 49) // a quarter of a fifth of 999
	got = f(0, 0, backend.Lease{Want: 500, Held: 49, Counted: got.Counted, Generation: got.Generation}, 913, 37)
	if got.Counted != 86 {
		t.Errorf("%d tokens counted, want the 49 that were held and 37 more", got.Counted)
	}
	f(100*ms, 1, backend.Lease{}, 913, 0)   // the bucket holds no more while 86 are out, and takes the hit from that
	f(200*ms, 0, backend.Lease{}, 914, 0)   // which is full again at once
	f(7999*ms, 0, backend.Lease{}, 914, 0)  // to the end of the next generation
	f(8*s, 0, backend.Lease{}, 915, 0)      // then the tokens count as gone, and their place fills up
	f(8500*ms, 0, backend.Lease{}, 1000, 0) // in its time
	got = f(9*s, 0, backend.Lease{Want: 20}, 980, 20)
	f(9100*ms, 0, backend.Lease{Back: 15, Counted: got.Counted, Generation: got.Generation}, 1000, 0)
	f(10*s, 2000, backend.Lease{Want: 20}, 1000, 0) // no lease for a call that was not paid
}

func TestLeaseForSeveralCalls(t *testing.T) {
	limit := backend.Limit{Requests: 10, Period: time.Second, Burst: 10}
	var b backend.Bucket
	f := func(hits, calls uint64, ok bool, charged uint64) {
		t.Helper()
		got := settle(&b, backend.Take{Limit: limit, Hits: hits, Lease: &backend.Lease{Calls: calls}}, start)
		if got.OK != ok || got.Charged != charged {
			t.Errorf("%d calls of %d: OK %v and %d charged, want %v and %d", calls, hits, got.OK, got.Charged, ok, charged)
		}
	}
	f(3, 2, true, 6)
	f(3, 2, true, 3) // one of the two
	f(2, 5, false, 0)
	f(1, 5, true, 1)
	f(1, 5, false, 0)
}

func TestDecay(t *testing.T) {
	for _, ms := range []int{0, 10, 100, 250, 500} {
		d := time.Duration(ms) * time.Millisecond
		got, want := backend.Decay(100, d), 100*math.Exp(-d.Seconds()/0.25)
		if math.Abs(got-want) > 1 {
			t.Errorf("Decay(100, %v) = %v, want about %v", d, got, want)
		}
	}
	if got := backend.Decay(100, -time.Second); got != 100 {
		t.Errorf("Decay(100, -1s) = %v, want 100", got)
	}
}

func TestTakesThatCannotLease(t *testing.T) {
	limit := backend.Limit{Requests: 10, Period: time.Second, Burst: 10}
	sliding := limit
	sliding.Algorithm = backend.SlidingWindow
	for _, takes := range [][]backend.Take{
		{{Limit: sliding, Hits: 1, Lease: &backend.Lease{}}},
		{{Limit: limit, Lease: &backend.Lease{Calls: 2}}},
		{{Limit: limit, Hits: 1, Overflow: backend.Debt, Lease: &backend.Lease{Calls: 2}}},
		{{Limit: limit, Hits: 1, Lease: &backend.Lease{Calls: 2}}, {Limit: limit, Hits: 1}},
	} {
		if backend.Check(takes, make([]backend.Decision, len(takes))) == nil {
			t.Errorf("Check(%+v) = nil, want an error", takes)
		}
	}
}

func TestAlgorithmsThatLease(t *testing.T) {
	for a := range backend.SlidingLog + 1 {
		limit := backend.Limit{Algorithm: a, Requests: 10, Period: time.Second, Burst: 10}
		err := backend.Check([]backend.Take{{Limit: limit, Lease: &backend.Lease{}}}, make([]backend.Decision, 1))
		want := a == backend.TokenBucket || a == backend.FixedWindow
		if a.Leases() != want || (err == nil) != want {
			t.Errorf("algorithm %d: Leases() = %v and Check() = %v, want leases %v", a, a.Leases(), err, want)
		}
	}
}
