package prefetch

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// entry is a key on this instance. Its first part is read and written without a lock; times
// are nanoseconds since the start of the Store, by the monotonic clock.
type entry struct {
	next atomic.Pointer[entry]
	hash uint64
	key  string
	size atomic.Pointer[size]

	// tokens are those of the lease, which may be spent before expires. They are only ever
	// taken by compare-and-swap, so that what is read here is never less than what is left.
	tokens  atomic.Int64
	expires atomic.Int64
	// window is the number of the fixed window that the tokens are of; 0 where there is none.
	window atomic.Int64
	// low is the number of tokens at which to ask for more, but not before poll.
	low, poll atomic.Int64
	// served and denied count the calls decided here since the last ask, asks the hits of
	// those denied.
	served, denied atomic.Uint32
	asks           atomic.Int64

	// level is what the store said last (the bits of a float64), in answer to what was sent
	// at told; both are zero before that. Until known, calls are denied by it.
	level       atomic.Uint64
	told, known atomic.Int64
	// ends is when the window ends that level is of, or a little before.
	ends atomic.Int64
	// turn is odd while tokens and level change together, and moves on each time.
	turn atomic.Uint32
	// pause is when the scarcity pause ends, and gate the fewest hits that it holds for.
	pause, gate atomic.Int64

	// busy is whether an ask is in flight, or a call of several takes that has the lease
	// with it.
	busy atomic.Bool

	mu      sync.Mutex // guards the rest
	dropped bool       // from the table: no lease any more
	listed  bool       // in the Store's list of leases
	scarce  uint8      // answers in a row that were
	waiters []*waiter
	// held is what tokens would be if none had been taken since the last ask, and owed what
	// goes back by the next one.
	held, owed int64
	// over is when the window ends that tokens and owed are of, or a little before.
	over       int64
	counted    uint64 // see backend.Lease, as the next two
	generation int64
	demand     float64
	share      float64 // of the hits asked for in this window, or in the last; 0: not known
	rate       float64 // hits per second
	asked      int64   // hits of calls that were not decided here, since the last ask
	last       int64   // when rate and demand were brought up to date
	heard      int64   // when the answer came that level is of
}

// verdict is what memory says of a take.
type verdict uint8

const (
	unknown verdict = iota
	// likely is unknown, but the store has told of enough tokens lately.
	likely
	within
	over
)

// take decides a plain charge from the lease, or denies it.
func (s *Store) take(e *entry, z *size, t *backend.Take, d *backend.Decision) verdict {
	hits := int64(min(t.Hits, backend.MaxHits))
	for {
		l := e.lease()
		have := e.tokens.Load()
		if have < hits {
			v := s.deny(e, z, t, have, d)
			if v == over {
				s.refused(e, t)
			}
			return v
		}
		if e.tokens.CompareAndSwap(have, have-hits) {
			return s.spend(e, z, l, hits, have-hits, d)
		}
	}
}

// lease is what an entry says of its tokens to one who is about to take some. It is read
// before they are taken: who reads of a new window takes no token of the old one then, since
// those were gone before that could be read.
type lease struct {
	window, expires int64
	turn            uint32
}

func (e *entry) lease() lease {
	return lease{turn: e.turn.Load(), window: e.window.Load(), expires: e.expires.Load()}
}

// spend decides a call whose hits were taken from the lease. The clock is read after they
// were, so that a process that was stopped in between spends nothing that ran out.
func (s *Store) spend(e *entry, z *size, l lease, hits, left int64, d *backend.Decision) verdict {
	now := s.now()
	if now >= l.expires {
		e.mu.Lock()
		s.oweLocked(e, hits, l.window)
		e.mu.Unlock()
		return unknown
	}
	if left <= e.low.Load() && now >= e.poll.Load() {
		s.refill(e)
	}
	e.served.Add(1)
	*d = backend.Decision{OK: true, Charged: uint64(hits), Level: e.left(z, now, left, l.turn)}
	d.Full = e.full(z, d.Level, now)
	return within
}

// left is what is left in the bucket and in the lease, which had so many tokens in a turn. If
// an answer moved some from one to the other since, it looks again.
func (e *entry) left(z *size, now, tokens int64, turn uint32) float64 {
	for {
		level := e.sum(z, now, tokens)
		if after := e.turn.Load(); after == turn && after%2 == 0 {
			return level
		} else if turn = after; after%2 == 1 {
			runtime.Gosched()
		}
		tokens = e.tokens.Load()
	}
}

// deny denies a take that the lease cannot pay, if the store could not either.
func (s *Store) deny(e *entry, z *size, t *backend.Take, have int64, d *backend.Decision) verdict {
	now := s.now()
	wait := e.refusal(z, t, have, now)
	if wait == 0 {
		return unknown
	}
	e.refuse(z, t, have, now, wait, d)
	return over
}

// refuse makes the decision of a take that is over its limit. In a pause there may be more
// than it asks for; that is for when the pause ends.
func (e *entry) refuse(z *size, t *backend.Take, have, now int64, wait time.Duration, d *backend.Decision) {
	level := e.sum(z, now, have)
	if hits := need(t); hits <= z.capacity && level >= hits-slack(hits) {
		level = hits - 1
	}
	*d = backend.Decision{Wait: wait, Level: level, Full: e.full(z, level, now)}
}

// full is how long until the bucket is full that has level.
func (e *entry) full(z *size, level float64, now int64) time.Duration {
	return z.wait(z.capacity, level, e.ends.Load()-now)
}

// refused counts a denial. One that comes shortly before the pause ends asks for tokens, so
// that they are there when it does.
func (s *Store) refused(e *entry, t *backend.Take) {
	e.countDenial(t)
	s.wake(e)
}

func (e *entry) countDenial(t *backend.Take) {
	e.denied.Add(1)
	e.asks.Add(int64(min(t.Hits, backend.MaxHits)))
}

// wake asks for tokens shortly before a pause ends.
func (s *Store) wake(e *entry) {
	now := s.now()
	if pause := e.pause.Load(); now < pause && now >= pause-s.trip.Load() {
		s.refill(e)
	}
}

// peek says what take would, but takes nothing and counts nothing. It knows looks as well. If
// the take is likely to be within its limit, it makes the decision for a denied call.
func (s *Store) peek(e *entry, z *size, t *backend.Take, d *backend.Decision) verdict {
	if t.Give > 0 || t.Overflow != backend.Reject {
		return unknown
	}
	now, have := s.now(), e.tokens.Load()
	if now >= e.expires.Load() {
		have = 0
	}
	level := e.sum(z, now, have)
	if float64(have) >= need(t) {
		*d = backend.Decision{OK: true, Level: level, Full: e.full(z, level, now)}
		return within
	}
	if wait := e.refusal(z, t, have, now); wait > 0 {
		e.refuse(z, t, have, now, wait, d)
		return over
	}
	if now >= e.known.Load() || level < need(t) {
		return unknown
	}
	*d = backend.Decision{OK: true, Level: level, Full: e.full(z, level, now)}
	return likely
}

// refusal is how long a take must wait that the lease cannot pay: until the pause ends, or
// until a bucket that nobody else takes from has what the lease has not. Zero: the store may
// be able to pay it.
func (e *entry) refusal(z *size, t *backend.Take, have, now int64) time.Duration {
	hits := need(t)
	if pause := e.pause.Load(); now < pause && hits >= float64(e.gate.Load()) {
		return max(micros(pause-now), z.wait(hits, e.sum(z, now, have), 0))
	}
	if now >= e.known.Load() {
		return 0
	}
	level := e.sum(z, now, have)
	if hits <= z.capacity && level >= hits-slack(hits) {
		return 0
	}
	return max(z.wait(hits, level, e.ends.Load()-now), time.Microsecond)
}

// need is the number of tokens that a take must find.
func need(t *backend.Take) float64 { return float64(min(max(t.Hits, 1), backend.MaxHits)) }

// micros rounds nanoseconds up to whole microseconds.
func micros(nanos int64) time.Duration { return time.Duration((nanos + 999) / 1000 * 1000) }

// estimate is the level of the bucket as the store told last, with what has come back since.
// The times are read first, and written last: a level that is newer than its time makes the
// estimate too high, and then the store is asked.
func (e *entry) estimate(z *size, now int64) float64 {
	told, ends := e.told.Load(), e.ends.Load()
	level := math.Float64frombits(e.level.Load())
	if told == 0 || (z.window && now >= ends) {
		return z.capacity
	}
	if z.window {
		return min(level, z.capacity)
	}
	return min(level+float64(now-told)/z.token, z.capacity)
}

// sum is the level with what the lease has. It is no more than the capacity: the bucket may
// not have filled up the place of tokens that were spent here, but will with the next ask.
func (e *entry) sum(z *size, now, tokens int64) float64 {
	return min(e.estimate(z, now)+float64(tokens), z.capacity)
}

// noteLocked keeps what the store said of the level, in answer to what was sent at some time.
func (e *entry) noteLocked(z *size, d *backend.Decision, sent, now int64) {
	e.known.Store(0)
	e.level.Store(math.Float64bits(d.Level))
	e.told.Store(sent)
	if z.window {
		e.ends.Store(sent + int64(d.Full))
	}
	e.known.Store(sent + z.memory)
	e.heard = now
}

// hear is noteLocked for a call that went beside the asks. Answers of calls that were under
// way at the same time come in any order: the lowest level is the last.
func (e *entry) hear(z *size, d *backend.Decision, sent, now int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.size.Load() != z || (z.window && now >= sent+int64(d.Full) && now < e.ends.Load()) {
		return // of another limit, or of a window that is over
	}
	known := now < e.known.Load() && sent <= e.heard
	level := d.Level
	if !z.window {
		level += float64(now-sent) / z.token
	}
	if !known || level <= e.estimate(z, now) {
		e.noteLocked(z, d, sent, now)
	}
}

// forget makes nothing of what the store said of the level: a take gave tokens back.
func (e *entry) forget() {
	e.known.Store(0)
	e.pause.Store(0)
	e.poll.Store(0)
}

// countLocked brings rate and demand up to now, by the hits of all calls since the last time.
func (e *entry) countLocked(now int64) (hits int64) {
	spent := e.held - e.tokens.Load()
	e.held -= spent
	hits = spent + e.asks.Swap(0) + e.asked
	e.asked = 0
	if e.last == 0 { // one call makes no rate
		e.last, e.demand = now, float64(hits)
		return hits
	}
	elapsed := float64(now - e.last)
	if elapsed <= 0 {
		e.asked = hits // until time has passed
		return 0
	}
	e.last = now
	e.demand = backend.Decay(e.demand, time.Duration(elapsed)) + float64(hits)
	rate := float64(hits) / max(elapsed, float64(shortest)) * 1e9
	weight := min(0.5, float64(hits)/8)
	if rate <= e.rate {
		weight = 1 - math.Exp(-elapsed/max(1e8, 4e9/e.rate))
	}
	e.rate += weight * (rate - e.rate)
	return hits
}

// hotLocked reports whether the key is worth a lease.
func (e *entry) hotLocked(z *size) bool {
	return z.leases && e.rate*horizon.Seconds() >= worth
}
