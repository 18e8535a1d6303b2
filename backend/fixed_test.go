package backend_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// user is an instance in a test that leases from a fixed window.
type user struct {
	tokens     uint64
	expires    int64
	counted    uint64
	generation int64
	asked      *message // that is under way
}

// message is an ask and its answer.
type message struct {
	take     backend.Take
	sent     int64
	answered bool
	full     time.Duration
}

// windows is a fixed window with all its users, and messages that nobody waits for any more.
type windows struct {
	*testing.T
	random *rand.Rand
	now    int64
	limit  backend.Limit
	bucket backend.Bucket
	users  [4]user
	strays []*message
	// admitted is what passed in the window of that number, and most the most in any.
	number, admitted, most int64
	// void is the tokens of asks that arrived in the window after that of their sending.
	void uint64
}

// TestLevelAndLeasesOfAWindow plays instances that ask, spend and crash, and whose messages take
// their time, are lost, or arrive when nobody waits for them any more. Of each window no more is
// admitted than the limit, and the tokens left in it and those that instances may still spend are
// never more, refunds or not. If nothing is lost, what was not admitted is left, but for what an
// ask held on to that crossed the edge of two windows: that counts as out, for refunds and returns.
func TestLevelAndLeasesOfAWindow(t *testing.T) {
	const seeds = 90
	full := 0
	for seed := range uint64(seeds) {
		w := &windows{T: t, random: rand.New(rand.NewPCG(seed, 6)), now: start}
		w.limit.Period = []time.Duration{time.Second, 3 * time.Second, time.Minute, 24 * time.Hour}[w.random.IntN(4)]
		w.limit = w.anyLimit()
		kind := seed % 3 // 0: refunds and changes of the limit, 1: losses, 2: neither
		for step := range 3000 {
			w.step(kind)
			out := uint64(0)
			for i := range w.users {
				if w.now < w.users[i].expires {
					out += w.users[i].tokens
				}
			}
			level := settle(&w.bucket, backend.Take{Limit: w.limit}, w.now).Level
			if sum, most := max(level, 0)+float64(out), float64(w.limit.Requests); sum > most {
				t.Fatalf("seed %d step %d: level %v and leases of %v are more than the limit %v", seed, step, level, out, most)
			}
			if kind > 0 && w.most > int64(w.limit.Requests) {
				t.Fatalf("seed %d step %d: %d admitted in a window of %d", seed, step, w.most, w.limit.Requests)
			}
		}
		if kind == 2 {
			w.settleAll()
			level := settle(&w.bucket, backend.Take{Limit: w.limit}, w.now).Level
			left := float64(w.limit.Requests) - float64(w.admitted)
			if w.number == w.limit.Window(w.now) && (level > left || level < left-float64(w.void)) {
				t.Errorf("seed %d: level %v once all leases are back, want %v, or %d less", seed, level, left, w.void)
			}
		}
		if w.most == int64(w.limit.Requests) {
			full++
		}
	}
	if full < 20 {
		t.Errorf("%d of %d seeds had a window that was used up: the steps show nothing", full, seeds)
	}
}

// anyLimit is another limit of the same period.
func (w *windows) anyLimit() backend.Limit {
	requests := []uint64{20, 100, 1000, 10_000}[w.random.IntN(4)]
	return backend.Limit{Algorithm: backend.FixedWindow, Requests: requests, Period: w.limit.Period, Burst: 1}
}

// step is one thing that happens.
func (w *windows) step(kind uint64) {
	period := w.limit.Period.Microseconds()
	if w.now += []int64{0, 0, 100, 10_000, period / 1000, period / 150}[w.random.IntN(6)]; w.random.IntN(500) == 0 {
		w.now += w.random.Int64N(period)
	}
	u := &w.users[w.random.IntN(len(w.users))]
	switch w.random.IntN(14) {
	case 0:
		if kind == 0 {
			w.change()
		}
	case 1: // a crash: nobody spends these any more, and a new instance begins
		if kind != 2 {
			w.strays = append(w.strays, u.asked)
			*u = user{}
		}
	case 2:
		if n := len(w.strays); n > 0 {
			w.arrive(w.strays[0])
			w.strays = w.strays[1:]
		}
	case 3:
		if kind != 2 && u.asked != nil { // not waited for any more, and maybe it arrives, and maybe late
			w.strays = append(w.strays, u.asked)
			u.asked, u.counted = nil, 0
		}
	case 4:
		if kind == 0 {
			settle(&w.bucket, backend.Take{Limit: w.limit, Give: w.random.Uint64N(w.limit.Requests / 4)}, w.now)
		}
	case 5, 6, 7:
		if n := w.random.Uint64N(30 + w.limit.Requests/20); w.now < u.expires && n <= u.tokens {
			u.tokens -= n
			w.admit(n)
		}
	default:
		switch {
		case u.asked == nil:
			w.ask(u)
		case !u.asked.answered:
			w.arrive(u.asked)
		default:
			w.land(u)
		}
	}
}

// change gives all instances another limit, under which they give back what they hold.
func (w *windows) change() {
	w.limit = w.anyLimit()
	for i := range w.users {
		w.users[i].expires = 0
		if m := w.users[i].asked; m != nil {
			w.strays = append(w.strays, m)
			w.users[i].asked, w.users[i].counted = nil, 0
		}
	}
}

func (w *windows) ask(u *user) {
	lease := &backend.Lease{
		Want: uint64(w.random.IntN(2000)), Counted: u.counted, Generation: u.generation,
		Fraction: 0.3 * w.random.Float64(), Scarce: float64(w.limit.Requests / 20), Demand: float64(w.random.IntN(50)), Asked: uint64(w.random.IntN(50)),
	}
	if w.now < u.expires && w.random.IntN(2) == 0 {
		lease.Held = u.tokens
	} else {
		lease.Back, u.tokens = u.tokens, 0
	}
	m := &message{take: backend.Take{Limit: w.limit, Lease: lease}, sent: w.now}
	switch w.random.IntN(4) {
	case 0:
		m.take.Hits = w.random.Uint64N(6 + w.limit.Requests/6)
	case 1:
		m.take.Hits, lease.Calls = 1+uint64(w.random.IntN(3)), uint64(w.random.IntN(9))
	}
	u.asked = m
}

// arrive has the store decide an ask. What it charges is admitted then.
func (w *windows) arrive(m *message) {
	if m == nil || m.answered {
		return
	}
	if l := m.take.Lease; w.limit.Window(l.Generation) != w.limit.Window(w.now) {
		w.void += l.Held
	}
	d := settle(&w.bucket, m.take, w.now)
	m.answered, m.full = true, d.Full
	w.admit(d.Charged)
}

// land brings the answer to the instance that asked.
func (w *windows) land(u *user) {
	m, lease := u.asked, u.asked.take.Lease
	if w.limit.Window(lease.Generation) != w.limit.Window(u.generation) {
		u.tokens = 0
	}
	u.asked, u.counted, u.generation = nil, lease.Counted, lease.Generation
	u.tokens += lease.Granted
	u.expires = m.sent + min(backend.LeaseLife, m.full).Microseconds()
}

// settleAll has all answers arrive and all tokens go back.
func (w *windows) settleAll() {
	for i := range w.users {
		u := &w.users[i]
		if u.asked != nil {
			w.arrive(u.asked)
			w.land(u)
		}
		settle(&w.bucket, backend.Take{Limit: w.limit, Lease: &backend.Lease{Back: u.tokens, Counted: u.counted, Generation: u.generation}}, w.now)
		u.tokens = 0
	}
}

func (w *windows) admit(n uint64) {
	if is := w.limit.Window(w.now); is != w.number {
		w.number, w.admitted = is, 0
	}
	w.admitted += int64(n)
	w.most = max(w.most, w.admitted)
}

// TestLeaseOfAWindow is the life of a lease of a fixed window by numbers.
func TestLeaseOfAWindow(t *testing.T) {
	limit := backend.Limit{Algorithm: backend.FixedWindow, Requests: 1000, Period: time.Minute, Burst: 1}
	var b backend.Bucket
	now := int64(start) / 60_000_000 * 60_000_000
	f := func(at time.Duration, hits uint64, lease backend.Lease, level float64, granted uint64) backend.Lease {
		t.Helper()
		lease.Fraction = 0.2
		got := settle(&b, backend.Take{Limit: limit, Hits: hits, Lease: &lease}, now+at.Microseconds())
		if got.Level != level || lease.Granted != granted {
			t.Errorf("at %v: level %v and %d granted, want %v and %d", at, got.Level, lease.Granted, level, granted)
		}
		return lease
	}
	back := func(of backend.Lease, n uint64) backend.Lease {
		return backend.Lease{Back: n, Counted: of.Counted, Generation: of.Generation}
	}
	const s = time.Second
	got := f(0, 1, backend.Lease{Want: 500}, 950, 49) // a quarter of a fifth of 999
	got = f(s, 0, backend.Lease{Want: 500, Held: 49, Counted: got.Counted, Generation: got.Generation}, 913, 37)
	lost := got
	f(2*s, 0, backend.Lease{Want: 500}, 885, 28) // of another one, while 86 are out
	f(2*s, 0, back(got, 80), 965, 0)
	f(20*s, 0, back(lost, 0), 965, 0)                   // nobody says what became of the rest: it is used
	got = f(20*s, 0, backend.Lease{Want: 500}, 917, 48) // and out no more
	f(59*s, 0, backend.Lease{Want: 500, Held: 48, Counted: got.Counted, Generation: got.Generation}, 881, 36)
	f(60*s, 0, back(got, 48), 1000, 0) // the next window is not that of these
	got = f(60*s, 1, backend.Lease{Want: 20, Held: 48, Generation: got.Generation}, 979, 20)
	f(119*s, 2000, back(got, 15), 994, 0) // also if the call is not paid
	if limit.Window(got.Generation) != limit.Window(now)+1 {
		t.Errorf("generation %d lies in window %d, want the one after %d", got.Generation, limit.Window(got.Generation), limit.Window(now))
	}
}

// TestRefundOfALeasedWindow gives back more than was spent: what is out may still be.
func TestRefundOfALeasedWindow(t *testing.T) {
	limit := backend.Limit{Algorithm: backend.FixedWindow, Requests: 1000, Period: time.Minute, Burst: 1}
	var b backend.Bucket
	lease := backend.Lease{Want: 30, Fraction: 1}
	settle(&b, backend.Take{Limit: limit, Hits: 100, Lease: &lease}, start)
	if got := settle(&b, backend.Take{Limit: limit, Give: 500}, start); lease.Granted != 30 || got.Level != 970 {
		t.Errorf("level %v after a refund while %d are out, want 970 and 30", got.Level, lease.Granted)
	}
}

// TestLeasesOfAnInstance bounds what one crash may lose, and what is leased at all.
func TestLeasesOfAnInstance(t *testing.T) {
	for _, requests := range []uint64{10, 53, 54, 100, 10_000} {
		limit := backend.Limit{Algorithm: backend.FixedWindow, Requests: requests, Period: time.Hour, Burst: 1}
		var b backend.Bucket
		var held backend.Lease
		for range 50 {
			held = backend.Lease{Want: 1 << 40, Fraction: 0.15, Held: held.Held + held.Granted, Counted: held.Counted, Generation: held.Generation}
			settle(&b, backend.Take{Limit: limit, Lease: &held}, start)
		}
		if leases := held.Held > 0; leases != (requests > 53) || held.Held > requests*15/100 {
			t.Errorf("limit %d: %d tokens held after 50 asks", requests, held.Held)
		}
		first := backend.Lease{Want: 1 << 40, Fraction: 0.15}
		var fresh backend.Bucket
		settle(&fresh, backend.Take{Limit: limit, Lease: &first}, start)
		if first.Granted > requests*5/100 {
			t.Errorf("limit %d: %d tokens by one ask, want 5 %% at most", requests, first.Granted)
		}
	}
}
