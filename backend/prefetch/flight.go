package prefetch

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// waiter is a call of one take that waits for an ask.
type waiter struct {
	take     *backend.Take // the caller's, until it has left
	decision backend.Decision
	err      error
	// alone tells the call to ask the store by itself.
	alone bool
	// done gets one element once the rest is written.
	done chan struct{}

	// answered and left are guarded by the entry's mutex.
	answered, left bool
}

// ask is an ask of an entry's lease, with the charge of calls that wait for it, or beside the
// take of a call.
type ask struct {
	take  backend.Take
	lease backend.Lease
	size  *size
	sent  int64
	// group are the waiters for whom the take stands.
	group []*waiter
	dst   [1]backend.Decision
}

// refill asks for more in the background.
func (s *Store) refill(ctx context.Context, e *entry) {
	if e.busy.CompareAndSwap(false, true) && !s.flights.start(func() { s.fly(ctx, e, false) }) {
		e.busy.Store(false)
	}
}

// fly asks for an entry that is busy with that, until nobody waits any more. A lease that
// cools asks for nothing and gives all back.
func (s *Store) fly(ctx context.Context, e *entry, cooling bool) {
	ctx = context.WithoutCancel(ctx) // who wants it may leave, and others wait for it
	for {
		e.mu.Lock()
		a := s.groupLocked(e)
		live := len(a.group) == 0 && !cooling && s.now() < e.expires.Load()
		s.beginLocked(e, a, live)
		if cooling && len(a.group) == 0 {
			a.lease.Want = 0
		}
		e.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, patience)
		a.sent = s.now()
		err := s.store.Take(ctx, []backend.Take{a.take}, a.dst[:])
		cancel()
		if !s.land(ctx, e, a, err) {
			return
		}
	}
}

// groupLocked makes an ask for the calls that wait: those of the first one's cost.
func (s *Store) groupLocked(e *entry) *ask {
	a := &ask{size: e.size.Load()}
	a.take = backend.Take{Key: []byte(e.key), Limit: a.size.limit}
	if len(e.waiters) == 0 {
		return a
	}
	first := e.waiters[0].take
	a.take.Limit, a.take.Hits, a.take.OnFailure = first.Limit, first.Hits, first.OnFailure
	rest := e.waiters[:0]
	for _, w := range e.waiters {
		if w.take.Hits == first.Hits && w.take.Limit == first.Limit {
			a.group = append(a.group, w)
		} else {
			rest = append(rest, w)
		}
	}
	clear(e.waiters[len(rest):])
	e.waiters = rest
	a.lease.Calls = uint64(len(a.group))
	return a
}

// beginLocked fills in the lease of an ask. If the lease is live, what is held of it may be
// spent while the ask is under way; else it goes back with the ask.
func (s *Store) beginLocked(e *entry, a *ask, live bool) {
	now := s.now()
	l, z := &a.lease, a.size
	l.Asked = uint64(max(e.countLocked(now), 0))
	if live {
		l.Held = uint64(e.tokens.Load())
	} else {
		back := e.tokens.Swap(0)
		e.asked += e.held - back // spent since the count
		e.held = 0
		l.Back = uint64(back)
	}
	l.Back += uint64(e.owed)
	s.returned.Add(l.Back)
	e.owed = 0
	l.Counted, l.Generation, l.Demand = e.counted, e.generation, e.demand
	l.Fraction, l.Scarce = s.options.Fraction, z.scarce
	if e.hotLocked(z) && !s.flights.ended.Load() {
		l.Want = uint64(max(min(e.rate*horizon.Seconds(), z.most)-float64(l.Held), 0))
	}
	s.flush(e)
	e.counted = 0 // unless there is an answer
	a.take.Lease = l
	a.sent = now
	s.asks.Add(1)
}

// land brings an answer to the entry and those who wait, and reports whether someone waits
// for another ask. The entry is busy no longer if not.
func (s *Store) land(ctx context.Context, e *entry, a *ask, err error) (more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := &a.dst[0]
	if err != nil || d.Source != backend.Bucketed {
		s.lostLocked(e, a, err)
	} else {
		s.landLocked(e, a, d)
		s.serveLocked(e, a, d)
	}
	if s.queueLocked(ctx, e); len(e.waiters) > 0 {
		return true
	}
	e.busy.Store(false)
	return false
}

// lostLocked is land without an answer of the bucket: nobody knows what it counts, so it is
// left to forget that. What was held may be spent until its time ends, as the last answer had it.
func (s *Store) lostLocked(e *entry, a *ask, err error) {
	e.forget()
	e.poll.Store(s.now() + int64(longestPause))
	s.lost.Add(a.lease.Back)
	for i, w := range a.group {
		w.err = err
		// What stands in for the store has decided one call.
		if w.alone = err == nil && i > 0; err == nil {
			w.decision = a.dst[0]
		}
		s.answerLocked(e, w)
	}
}

// landLocked brings the tokens of an answer into the lease, and says when to ask again.
func (s *Store) landLocked(e *entry, a *ask, d *backend.Decision) {
	now := s.now()
	s.measure(now - a.sent)
	l, z := &a.lease, a.size
	e.counted, e.generation = l.Counted, l.Generation
	s.granted.Add(l.Granted)
	if e.size.Load() != z || e.dropped { // the limit changed meanwhile
		e.owed += int64(l.Granted)
		s.listLocked(e)
		return
	}
	e.held += int64(l.Granted)
	e.turn.Add(1)
	tokens := float64(e.tokens.Add(int64(l.Granted)))
	e.noteLocked(d.Level, a.sent, now)
	e.turn.Add(1)
	s.paceLocked(e, a, d, now)
	if tokens == 0 {
		return
	}
	span := max(2*tokens/max(e.rate, 1e-3)*1e9, float64(leastLife)+2*float64(now-a.sent))
	span = min(span, float64(life))
	e.expires.Store(a.sent + int64(span*(0.9+0.1*rand.Float64())))
	use := e.rate * float64(s.trip.Load()) * 1.5e-9
	e.low.Store(int64(min(tokens/2, use+2*math.Sqrt(use))))
	s.listLocked(e)
}

// paceLocked sets the scarcity pause after an answer. Near empty, an entry comes back when
// its share of the refill has brought what it took; and the emptier the bucket and the longer
// that lasts, the later, so that the bucket gets a stock again.
func (s *Store) paceLocked(e *entry, a *ask, d *backend.Decision, now int64) {
	l, z := &a.lease, a.size
	poor := !d.OK || (len(a.group) > 0 && d.Charged/a.take.Hits < uint64(len(a.group)))
	scarce := z.leases && z.scarce*l.Share >= smallest && (poor || d.Level < z.scarce)
	if !scarce || l.Want == 0 {
		e.pause.Store(0)
		if poor {
			e.poll.Store(a.sent + int64(d.Wait))
			return
		}
		e.poll.Store(0)
		e.scarce = 0
		return
	}
	least := z.pause / 2
	if !poor {
		least = z.pause * (1 - max(d.Level, 0)/z.scarce)
	}
	e.scarce = min(e.scarce+1, 20)
	wait := float64(d.Charged+l.Granted) * z.token / l.Share
	wait = max(wait, min(least, float64(int64(leastPause)<<e.scarce)))
	wait = min(wait, z.pause) * (0.9 + 0.2*rand.Float64())
	if poor {
		wait = max(wait, float64(d.Wait))
	}
	until := now + int64(min(wait, float64(memory)))
	e.gate.Store(1)
	if poor && d.Level >= 1 {
		e.gate.Store(int64(min(a.take.Hits, backend.MaxHits))) // less may be there
	}
	e.poll.Store(until)
	e.pause.Store(until)
}

// serveLocked answers the waiters for whom an ask stood: as many as it was charged for are
// within the limit.
func (s *Store) serveLocked(e *entry, a *ask, d *backend.Decision) {
	paid := 0
	if len(a.group) > 0 {
		paid = int(d.Charged / a.take.Hits)
	}
	tokens := e.tokens.Load()
	for i, w := range a.group {
		w.decision = *d
		a.size.add(&w.decision, tokens)
		w.decision.OK, w.decision.Charged = i < paid, 0
		if i < paid {
			w.decision.Charged, w.decision.Wait = a.take.Hits, 0
		} else if d.OK { // the others were
			w.decision.Wait = max(a.size.wait(float64(a.take.Hits), w.decision.Level), time.Microsecond)
		}
		s.answerLocked(e, w)
	}
}

// queueLocked answers those who came while the ask was under way, if they can be decided now.
func (s *Store) queueLocked(ctx context.Context, e *entry) {
	rest := e.waiters[:0]
	for _, w := range e.waiters {
		z := e.size.Load()
		if z.limit == w.take.Limit && s.decideLocked(ctx, e, z, w) {
			s.answerLocked(e, w)
		} else {
			rest = append(rest, w)
		}
	}
	clear(e.waiters[len(rest):])
	e.waiters = rest
}

// decideLocked is Store.take for one who waits.
func (s *Store) decideLocked(ctx context.Context, e *entry, z *size, w *waiter) bool {
	hits, now := int64(min(w.take.Hits, backend.MaxHits)), s.now()
	have := e.tokens.Load()
	if have >= hits && now < e.expires.Load() {
		if !e.tokens.CompareAndSwap(have, have-hits) {
			return false
		}
		w.decision = backend.Decision{OK: true, Charged: uint64(hits), Level: e.sum(z, now, have-hits)}
		w.decision.Full = z.wait(z.capacity, w.decision.Level)
		return true
	}
	return have < hits && s.deny(ctx, e, z, w.take, have, &w.decision) == over
}

// answerLocked ends a waiter's wait. What was charged for one that has left goes back.
func (s *Store) answerLocked(e *entry, w *waiter) {
	w.answered = true
	if w.left {
		if w.err == nil && !w.alone && w.decision.Source == backend.Bucketed {
			s.oweLocked(e, int64(w.decision.Charged))
		}
		return
	}
	w.done <- struct{}{}
}

// oweLocked gives tokens back by the next ask.
func (s *Store) oweLocked(e *entry, n int64) {
	if n > 0 {
		e.owed += n
		s.listLocked(e)
	}
}

// measure brings the usual time of a round trip up to date.
func (s *Store) measure(took int64) {
	old := s.trip.Load()
	s.trip.Store(old + (took-old)/10)
}
