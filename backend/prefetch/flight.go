package prefetch

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// waiter is a call of one take that waits for an ask.
type waiter struct {
	request

	came     time.Time // zero without a budget
	decision backend.Decision
	err      error
}

// end goes on with the call.
func (w *waiter) end() { backend.End(w.then, w.give()) }

func (w *waiter) give() error {
	w.dst[0] = w.decision
	return w.err
}

// ask is an ask of an entry's lease, with the charge of calls that wait for it, or beside the
// take of a call.
type ask struct {
	s     *Store
	e     *entry
	takes [1]backend.Take
	lease backend.Lease
	size  *size
	sent  int64
	// group are the waiters for whom the take stands.
	group []*waiter
	dst   [1]backend.Decision
}

// refill asks for more in the background.
func (s *Store) refill(e *entry) {
	if e.busy.CompareAndSwap(false, true) {
		s.fly(e, false)
	}
}

// fly asks for an entry that is busy with that. A lease that cools asks for nothing and gives
// all back.
func (s *Store) fly(e *entry, cooling bool) {
	if !s.flights.begin() {
		s.abandon(e)
		return
	}
	s.ask(e, cooling)
}

// ask is fly for one whom flights knows of.
func (s *Store) ask(e *entry, cooling bool) {
	e.mu.Lock()
	a := s.groupLocked(e)
	live := len(a.group) == 0 && !cooling && s.now() < e.expires.Load()
	s.beginLocked(e, a, live)
	if cooling && len(a.group) == 0 {
		a.lease.Want = 0
	}
	e.mu.Unlock()
	a.sent = s.now()
	deadline := time.Now().Add(patience)
	for _, w := range a.group {
		if !w.deadline.IsZero() && w.deadline.Before(deadline) {
			deadline = w.deadline
		}
	}
	s.store.Start(deadline, a.takes[:], a.dst[:], a)
}

// abandon sends those who wait for an ask to the store, since no ask begins any more.
func (s *Store) abandon(e *entry) {
	e.mu.Lock()
	left := e.waiters
	e.waiters = nil
	e.busy.Store(false)
	e.mu.Unlock()
	s.waiting.Add(-int64(len(left)))
	for _, w := range left {
		s.pass(w.request)
	}
}

// Done implements backend.Continuation.
func (a *ask) Done(err error) backend.Flusher {
	s := a.s
	l := s.land(a.e, a, err)
	if l.more {
		s.ask(a.e, false)
	} else {
		s.flights.done()
	}
	return s.goOn(&l)
}

// landing is what comes of an answer.
type landing struct {
	// ended are the waiters that have been decided, and alone those that ask the store by
	// themselves.
	ended, alone []*waiter
	// more says that others wait for another ask.
	more bool
}

// goOn goes on with the calls that waited.
func (s *Store) goOn(l *landing) backend.Flusher {
	s.waiting.Add(-int64(len(l.ended) + len(l.alone)))
	var dirty backend.Flushers
	for _, w := range l.ended {
		dirty.Add(w.then.Done(w.give()))
	}
	for _, w := range l.alone {
		s.pass(w.request)
	}
	return dirty.Joined()
}

// groupLocked makes an ask for the calls that wait: those of the first one's cost.
func (s *Store) groupLocked(e *entry) *ask {
	a := &ask{s: s, e: e, size: e.size.Load()}
	a.takes[0] = backend.Take{Key: []byte(e.key), Limit: a.size.limit}
	if len(e.waiters) == 0 {
		return a
	}
	t, first := &a.takes[0], &e.waiters[0].takes[0]
	t.Limit, t.Hits, t.OnFailure = first.Limit, first.Hits, first.OnFailure
	rest := e.waiters[:0]
	for _, w := range e.waiters {
		if other := &w.takes[0]; other.Hits == first.Hits && other.Limit == first.Limit {
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
	if z.window && now >= e.over {
		s.voidLocked(e)
	}
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
	e.owed = 0
	l.Counted, l.Generation, l.Demand = e.counted, e.generation, e.demand
	l.Fraction, l.Scarce = s.options.Fraction, z.scarce
	if e.hotLocked(z) && !s.flights.ended.Load() {
		l.Want = uint64(max(e.wishLocked(z, now)-float64(l.Held), 0))
	}
	s.flush(e)
	e.counted = 0 // unless there is an answer
	a.takes[0].Lease = l
	a.sent = now
	s.asks.Add(1)
}

// land brings an answer to the entry and those who wait. The entry is busy no longer, unless
// someone waits for another ask.
func (s *Store) land(e *entry, a *ask, err error) (l landing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := &a.dst[0]
	if err != nil || d.Source != backend.Bucketed {
		s.lostLocked(e, a, err)
		if err == nil && len(a.group) > 1 { // what stands in for the store has decided one call
			l.ended, l.alone = a.group[:1:1], a.group[1:]
		} else {
			l.ended = a.group
		}
		s.loseLocked(e, &l)
	} else {
		s.landLocked(e, a, d)
		s.serveLocked(e, a, d)
		l.ended = a.group
	}
	s.queueLocked(e, &l)
	l.more = len(e.waiters) > 0
	if !l.more {
		e.busy.Store(false)
	}
	return l
}

// loseLocked sends those who came while an ask was under way that was lost to the store, each
// for what is left of its time: another ask may be lost as well.
func (s *Store) loseLocked(e *entry, l *landing) {
	if s.options.Budget <= 0 {
		return
	}
	for _, w := range e.waiters {
		w.deadline = w.came.Add(s.options.Budget + margin)
	}
	l.alone = append(slices.Clip(l.alone), e.waiters...)
	e.waiters = nil
}

// lostLocked is land without an answer of the bucket: nobody knows what it counts, so it is
// left to forget that. What was held may be spent until its time ends, as the last answer had it.
func (s *Store) lostLocked(e *entry, a *ask, err error) {
	e.forget()
	e.poll.Store(s.now() + int64(longestPause))
	s.lost.Add(a.lease.Back)
	for _, w := range a.group {
		w.decision, w.err = a.dst[0], err
	}
}

// landLocked brings the tokens of an answer into the lease, and says when to ask again.
func (s *Store) landLocked(e *entry, a *ask, d *backend.Decision) {
	now := s.now()
	s.measure(now - a.sent)
	l, z := &a.lease, a.size
	s.granted.Add(l.Granted)
	s.windowLocked(e, a, d)
	e.counted, e.generation = l.Counted, l.Generation
	if e.size.Load() != z || e.dropped { // the limit changed meanwhile
		e.owed += int64(l.Granted)
		s.listLocked(e)
		return
	}
	e.held += int64(l.Granted)
	if tokens := e.tokens.Load() + int64(l.Granted); tokens > 0 {
		s.extendLocked(e, a, d, float64(tokens), now)
	}
	e.turn.Add(1)
	e.tokens.Add(int64(l.Granted))
	e.noteLocked(z, d, a.sent, now)
	e.turn.Add(1)
	s.paceLocked(e, a, d, now)
}

// extendLocked says until when the tokens may be spent that an answer leaves here, and how few
// of them call for more.
func (s *Store) extendLocked(e *entry, a *ask, d *backend.Decision, tokens float64, now int64) {
	span := max(2*tokens/max(e.rate, 1e-3)*1e9, float64(leastLife)+2*float64(now-a.sent))
	span = min(span, float64(life)) * (0.9 + 0.1*rand.Float64())
	if a.size.window {
		span = min(span, lasts(d))
	}
	e.expires.Store(a.sent + int64(span))
	use := e.rate * float64(s.trip.Load()) * 1.5e-9
	e.low.Store(int64(min(tokens/2, use+2*math.Sqrt(use))))
	s.listLocked(e)
}

// paceLocked sets the scarcity pause after an answer. Near empty, an entry comes back when
// its share of the refill has brought what it took; and the emptier the bucket and the longer
// that lasts, the later, so that the bucket gets a stock again.
func (s *Store) paceLocked(e *entry, a *ask, d *backend.Decision, now int64) {
	l, z := &a.lease, a.size
	poor := !d.OK || (len(a.group) > 0 && d.Charged/a.takes[0].Hits < uint64(len(a.group)))
	scarce := z.leases && !z.window && z.scarce*l.Share >= smallest && (poor || d.Level < z.scarce)
	if !scarce || l.Want == 0 {
		e.pause.Store(0)
		if poor && z.window { // until it ends, or others may have given something back
			e.poll.Store(a.sent + min(int64(d.Wait), z.memory))
			return
		}
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
	wait = min(max(wait, least), float64(int64(leastPause)<<e.scarce))
	wait = min(wait, z.pause) * (0.9 + 0.2*rand.Float64())
	if poor {
		wait = max(wait, float64(d.Wait))
	}
	until := now + int64(min(wait, float64(memory)))
	e.gate.Store(1)
	if poor && d.Level >= 1 {
		e.gate.Store(int64(min(a.takes[0].Hits, backend.MaxHits))) // less may be there
	}
	e.poll.Store(until)
	e.pause.Store(until)
}

// serveLocked decides the waiters for whom an ask stood: as many as it was charged for are
// within the limit.
func (s *Store) serveLocked(e *entry, a *ask, d *backend.Decision) {
	hits, paid := a.takes[0].Hits, 0
	if len(a.group) > 0 {
		paid = int(d.Charged / hits)
	}
	tokens := e.tokens.Load()
	for i, w := range a.group {
		w.decision = *d
		a.size.add(&w.decision, tokens)
		w.decision.OK, w.decision.Charged = i < paid, 0
		if i < paid {
			w.decision.Charged, w.decision.Wait = hits, 0
		} else if d.OK { // the others were
			w.decision.Wait = max(a.size.wait(float64(hits), w.decision.Level, int64(d.Full)), time.Microsecond)
		}
	}
}

// queueLocked decides those who came while the ask was under way, if that can be done now.
func (s *Store) queueLocked(e *entry, l *landing) {
	rest := e.waiters[:0]
	for _, w := range e.waiters {
		z := e.size.Load()
		if z.limit == w.takes[0].Limit && s.decideLocked(e, z, w) != unknown {
			l.ended = append(l.ended, w)
		} else {
			rest = append(rest, w)
		}
	}
	clear(e.waiters[len(rest):])
	e.waiters = rest
}

// decideLocked is Store.take for one who waits.
func (s *Store) decideLocked(e *entry, z *size, w *waiter) verdict {
	t := &w.takes[0]
	hits, now := int64(min(t.Hits, backend.MaxHits)), s.now()
	have := e.tokens.Load()
	if have >= hits && now < e.expires.Load() {
		if !e.tokens.CompareAndSwap(have, have-hits) {
			return unknown
		}
		w.decision = backend.Decision{OK: true, Charged: uint64(hits), Level: e.sum(z, now, have-hits)}
		w.decision.Full = e.full(z, w.decision.Level, now)
		return within
	}
	if have >= hits || s.deny(e, z, t, have, &w.decision) != over {
		return unknown
	}
	e.countDenial(t)
	return over
}

// oweLocked gives tokens back by the next ask. If they are of a window that is over, they are
// gone.
func (s *Store) oweLocked(e *entry, n, window int64) {
	switch {
	case n <= 0:
	case window != e.window.Load():
		s.expired.Add(uint64(n))
	default:
		e.owed += n
		s.listLocked(e)
	}
}

// measure brings the usual time of a round trip up to date.
func (s *Store) measure(took int64) {
	old := s.trip.Load()
	s.trip.Store(old + (took-old)/10)
}
