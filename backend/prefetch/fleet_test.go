package prefetch_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/backend/prefetch"
)

// remote is a store at the other end of a network: 0.3 to 1 ms there and back.
type remote struct {
	backend.Store
	mu     sync.Mutex
	random *rand.Rand
	calls  int
}

const slowest = time.Millisecond

func (r *remote) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	r.mu.Lock()
	r.calls++
	there := time.Duration(150+r.random.IntN(350)) * time.Microsecond
	back := time.Duration(150+r.random.IntN(350)) * time.Microsecond
	r.mu.Unlock()
	time.Sleep(there)
	err := r.Store.Take(ctx, takes, dst)
	time.Sleep(back)
	return err
}

// meter is a leaky counter: its highest level beyond the capacity is the most that was
// admitted too much in any stretch of time.
type meter struct {
	mu              sync.Mutex
	limit           backend.Limit
	level, excess   float64
	at              time.Time
	admitted, asked float64
	ideal, less     backend.Bucket // exact buckets of the capacity, and of 0.79 of it
	exact, least    float64
	// number is that of the latest window in which something was admitted, used is how much
	// that was, and room what was left of the one before. late is how long an answer may take;
	// slowest if 0.
	number     int64
	used, room float64
	late       time.Duration
}

func (m *meter) ask(n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked += float64(n)
	now := time.Now().UnixMicro()
	small := m.limit
	small.Burst = uint64(math.Floor(0.79 * float64(small.Burst)))
	for _, b := range []struct {
		bucket *backend.Bucket
		limit  backend.Limit
		sum    *float64
	}{{&m.ideal, m.limit, &m.exact}, {&m.less, small, &m.least}} {
		var dst [1]backend.Decision
		backend.Settle([]backend.Take{{Limit: b.limit, Hits: n}}, []*backend.Bucket{b.bucket}, now, dst[:])
		*b.sum += float64(dst[0].Charged)
	}
}

func (m *meter) admit(n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.admitted += float64(n); m.limit.Algorithm == backend.FixedWindow {
		m.admitOf(now.UnixMicro(), float64(n))
		return
	}
	m.level = max(0, m.level-now.Sub(m.at).Seconds()*float64(m.limit.Requests)/m.limit.Period.Seconds())
	m.at = now
	m.level += float64(n)
	m.excess = max(m.excess, m.level-float64(m.limit.Burst))
}

// admitOf is admit for a fixed window. What is admitted at the begin of one may have been taken
// from the one before, by a call that waited for it.
func (m *meter) admitOf(now int64, n float64) {
	is := m.limit.Window(now)
	if is > m.number {
		m.room, m.used = float64(m.limit.Requests)-m.used, 0
		if is > m.number+1 {
			m.room = float64(m.limit.Requests)
		}
		m.number = is
	}
	if now-is*m.limit.Period.Microseconds() <= max(m.late, slowest).Microseconds() {
		late := min(n, max(m.room, 0))
		m.room -= late
		n -= late
	}
	m.used += n
	m.excess = max(m.excess, m.used-float64(m.limit.Requests))
}

// load is the rate of calls per second of an instance at a time.
type load func(instance, instances int, at time.Duration) float64

func even(total float64) load {
	return func(_, n int, _ time.Duration) float64 { return total / float64(n) }
}

func skewed(total float64) load {
	return func(i, n int, _ time.Duration) float64 {
		hot := max(n/5, 1)
		if i < hot {
			return 0.8 * total / float64(hot)
		}
		return 0.2 * total / float64(n-hot)
	}
}

func moving(total float64) load {
	return func(i, n int, at time.Duration) float64 {
		if int(at/(300*time.Millisecond))%n == i {
			return 0.8 * total
		}
		return 0.2 * total / float64(n-1)
	}
}

func onOff(total float64) load {
	return func(_, n int, at time.Duration) float64 {
		if at%time.Second < 200*time.Millisecond {
			return 5 * total / float64(n)
		}
		return 0
	}
}

func jump(low, high float64, when time.Duration) load {
	return func(_, n int, at time.Duration) float64 {
		if at < when {
			return low / float64(n)
		}
		return high / float64(n)
	}
}

// hopping is one instance after the other for a tenth of a second each, then all at once.
func hopping(low, high float64, when time.Duration) load {
	return func(i, n int, at time.Duration) float64 {
		if at >= when {
			return high / float64(n)
		}
		if int(at/(100*time.Millisecond))%n == i {
			return low
		}
		return 0
	}
}

// fleet is a run of several instances over one store.
type fleet struct {
	limit     backend.Limit
	instances int
	load      load
	peak      float64 // of load, of any instance
	lasts     time.Duration
	cost      func(*rand.Rand) uint64
	noLease   bool
}

type result struct {
	*meter
	calls, requests int
}

// run drives the fleet open-loop in a bubble.
func (f fleet) run(t *testing.T) result {
	t.Helper()
	var r result
	synctest.Test(t, func(t *testing.T) {
		net := &remote{Store: memstore.New(memstore.Options{}), random: rand.New(rand.NewPCG(1, 2))}
		m := &meter{limit: f.limit, at: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		var running, driving sync.WaitGroup
		requests := make([]int, f.instances)
		for i := range f.instances {
			s := prefetch.New(net, prefetch.Options{})
			running.Go(func() {
				if err := s.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			driving.Go(func() { requests[i] = f.drive(t, s, i, m) })
		}
		driving.Wait()
		time.Sleep(10 * time.Millisecond)
		cancel()
		running.Wait()
		r.meter, r.calls = m, net.calls
		for _, n := range requests {
			r.requests += n
		}
	})
	return r
}

func (f fleet) drive(t *testing.T, s backend.Store, instance int, m *meter) (requests int) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(instance), 3))
	start := time.Now()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for {
		time.Sleep(time.Duration(random.ExpFloat64() / f.peak * 1e9))
		at := time.Since(start)
		if at > f.lasts {
			return requests
		}
		if random.Float64()*f.peak >= f.load(instance, f.instances, at) {
			continue
		}
		cost := uint64(1)
		if f.cost != nil {
			cost = f.cost(random)
		}
		requests++
		m.ask(cost)
		waiting.Go(func() {
			var dst [1]backend.Decision
			if err := s.Take(t.Context(), []backend.Take{{Key: []byte("{edge}key"), Limit: f.limit, Hits: cost, NoLease: f.noLease}}, dst[:]); err != nil {
				t.Error(err)
			}
			if dst[0].OK {
				m.admit(cost)
			}
		})
	}
}

func perSecond(rate, burst uint64) backend.Limit {
	return backend.Limit{Requests: rate, Period: time.Second, Burst: burst}
}

func oneToFive(random *rand.Rand) uint64 { return 1 + random.Uint64N(5) }

// TestFleet is twenty instances on one key. In no stretch of time more is admitted than
// capacity and rate allow, beyond what the refill brings while an answer is on its way; and
// not less than an exact bucket of 0.79 of the capacity admits.
func TestFleet(t *testing.T) {
	const rate = 10_000
	peak := func(f load, share float64) fleet {
		return fleet{limit: perSecond(rate, rate), instances: 20, load: f, peak: share, lasts: 2 * time.Second}
	}
	for name, f := range map[string]fleet{
		"far below":    peak(even(0.2*rate), 0.2*rate/20),
		"below":        peak(even(0.9*rate), 0.9*rate/20),
		"above":        peak(even(2*rate), 2*rate/20),
		"skewed":       peak(skewed(2*rate), 0.4*rate),
		"moving":       peak(moving(2*rate), 1.6*rate),
		"on and off":   peak(onOff(1.1*rate), 5.5*rate/20),
		"jump":         peak(jump(0.5*rate, 10*rate, 1500*time.Millisecond), 0.5*rate),
		"hopping":      peak(hopping(0.5*rate, 10*rate, 1500*time.Millisecond), 0.5*rate),
		"small bursts": {limit: perSecond(1000, 100), instances: 20, load: even(2000), peak: 100, lasts: 3 * time.Second},
		"costs":        {limit: perSecond(1000, 1000), instances: 20, load: even(1000), peak: 50, lasts: 3 * time.Second, cost: oneToFive},
		"hopping thousand": {
			limit: perSecond(1000, 1000), instances: 20, load: hopping(500, 10_000, 2*time.Second), peak: 500, lasts: 3 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := f.run(t)
			r.check(t)
			if r.admitted < r.least {
				t.Errorf("%v admitted, but a bucket of 0.79 of the capacity would have admitted %v", r.admitted, r.least)
			}
		})
	}
}

// check fails if more was admitted than may be, or if there was nothing to admit.
func (r result) check(t *testing.T) {
	t.Helper()
	t.Logf("asked %v, admitted %v, exact %v, excess %.3f, %.4f calls a request", r.asked, r.admitted, r.exact, r.excess, float64(r.calls)/float64(r.requests))
	late := float64(r.limit.Requests) / r.limit.Period.Seconds() * slowest.Seconds()
	if r.limit.Algorithm == backend.FixedWindow {
		late = 0
	}
	if r.excess > late+1e-6 {
		t.Errorf("%v tokens more than capacity and rate allow in some stretch of time, want %v at most", r.excess, late)
	}
	if r.exact == 0 {
		t.Error("nothing was asked for")
	}
}

// TestSmallLimitsAreExact compares with one bucket that sees all calls as they come.
func TestSmallLimitsAreExact(t *testing.T) {
	for _, limit := range []backend.Limit{perSecond(10, 20), perSecond(50, 53), perSecond(5, 5), {Requests: 53, Period: time.Minute, Burst: 53}, inWindow(53, time.Minute), inWindow(5, time.Minute)} {
		for _, x := range []float64{0.5, 1.1, 10} {
			t.Run(fmt.Sprintf("%d of %v by algorithm %d, %v times", limit.Requests, limit.Capacity(), limit.Algorithm, x), func(t *testing.T) {
				t.Parallel()
				total := max(x*float64(limit.Requests)/limit.Period.Seconds()/3, 5)
				f := fleet{limit: limit, instances: 20, load: even(total), peak: total / 20, lasts: 10 * time.Second, cost: oneToFive}
				r := f.run(t)
				r.check(t)
				// Calls of different costs that are under way at once may overtake each other.
				f.noLease = true
				if store := f.run(t); r.admitted != r.exact && r.admitted != store.admitted {
					t.Errorf("%v tokens admitted, want %v as by one exact bucket, or %v as by the store alone", r.admitted, r.exact, store.admitted)
				}
			})
		}
	}
}

var long = flag.Bool("long", false, "run fleets for half a minute, and hold the bars of docs/exactness.md")

// TestCallsPerRequest makes the numbers that docs/exactness.md has.
func TestCallsPerRequest(t *testing.T) {
	const rate = 10_000
	lasts := time.Second
	if *long {
		lasts = 30 * time.Second
	}
	bucket, second, minute := perSecond(rate, rate), inWindow(rate, time.Second), inWindow(60*rate, time.Minute)
	for _, bar := range []struct {
		limit   backend.Limit
		x, most float64
	}{
		{bucket, 0.2, 0.02},
		{bucket, 0.9, 0.02},
		{bucket, 1.1, 0.06},
		{bucket, 2, 0.045},
		{bucket, 10, 0.015},
		{second, 0.2, 0.05},
		{second, 0.9, 0.05},
		{second, 1.1, 0.06},
		{second, 2, 0.045},
		{second, 10, 0.015},
		{minute, 0.9, 0.005},
		{minute, 2.1, 0.005},
		{minute, 10, 0.005},
	} {
		if bar.limit != bucket && !*long {
			continue
		}
		t.Run(fmt.Sprintf("%v in %v by algorithm %d", bar.x, bar.limit.Period, bar.limit.Algorithm), func(t *testing.T) {
			t.Parallel()
			r := fleet{limit: bar.limit, instances: 20, load: even(bar.x * rate), peak: bar.x * rate / 20, lasts: lasts}.run(t)
			r.check(t)
			most := bar.most
			if !*long {
				most += 0.1 // of its beginning, when all instances get their first leases
			}
			if calls := float64(r.calls) / float64(r.requests); calls > most {
				t.Errorf("%.4f calls to the store a request, want %v at most", calls, most)
			}
			if *long && r.admitted < 0.995*r.exact {
				t.Errorf("%v admitted of %v", r.admitted, r.exact)
			}
		})
	}
}
