package prefetch

import (
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// some is the number of takes up to which a call needs no memory.
const some = 8

// call is a call of several takes on its way.
type call struct {
	takes []backend.Take
	dst   []backend.Decision
	// entries are those of the takes, nil where the store alone decides; says is what memory
	// says of each.
	entries []*entry
	says    []verdict
	unknown int
	// windows are those of the tokens that were taken here.
	windows []int64
	// meet says that keys without an entry may get one.
	meet bool
}

// several is a call of several takes that memory may not decide.
type several struct {
	call

	s        *Store
	deadline time.Time
	then     backend.Continuation
	memory   room
	// rest are the takes that the store is asked for, with their decisions and entries.
	rest        []backend.Take
	restDst     []backend.Decision
	restEntries []*entry
}

// startSeveral decides a call of several takes, or of none.
func (s *Store) startSeveral(r request) {
	if len(r.takes) == 0 || len(r.takes) > some {
		s.pass(r)
		return
	}
	v := &several{s: s, deadline: r.deadline, then: r.then}
	v.call = v.memory.call(r.takes, r.dst)
	v.meet = true
	if s.decided(&v.call) {
		backend.End(r.then, nil)
		return
	}
	s.spendAll(&v.call)
	if v.unknown == 0 {
		backend.End(r.then, nil)
		return
	}
	s.askRest(v)
}

// Done implements backend.Continuation: the rest is decided.
func (v *several) Done(err error) backend.Flusher {
	if err != nil {
		v.s.giveBack(&v.call)
		return v.then.Done(err)
	}
	n := 0
	for i := range v.says {
		if v.says[i] == unknown {
			v.dst[i] = v.restDst[n]
			n++
		}
	}
	if backend.Denied(v.takes, v.dst) {
		v.s.giveBack(&v.call)
	}
	return v.then.Done(nil)
}

// takeSeveralNow decides a call of several takes if memory can; else it charges nothing, notes
// nothing and says false.
func (s *Store) takeSeveralNow(takes []backend.Take, dst []backend.Decision) bool {
	if len(takes) == 0 || len(takes) > some {
		return false
	}
	var room room
	c := room.call(takes, dst)
	if s.decided(&c) {
		return true
	}
	if c.unknown > 0 {
		return false
	}
	if s.spendAll(&c); c.unknown > 0 { // another call was faster
		s.giveBack(&c)
		return false
	}
	return true
}

// room is the memory of a call.
type room struct {
	entries [some]*entry
	says    [some]verdict
	windows [some]int64
}

func (r *room) call(takes []backend.Take, dst []backend.Decision) call {
	return call{takes: takes, dst: dst, entries: r.entries[:len(takes)], says: r.says[:len(takes)], windows: r.windows[:len(takes)]}
}

// decided reports whether memory denies the call. Then every decision is made; else every
// take is within, over or unknown.
func (s *Store) decided(c *call) bool {
	s.look(c)
	if c.unknown == 0 && backend.Denied(c.takes, c.dst) {
		for i, e := range c.entries {
			s.refused(e, &c.takes[i])
		}
		return true
	}
	for i := range c.says {
		if c.says[i] == likely { // not enough to charge it
			c.says[i] = unknown
			c.unknown++
		}
	}
	return false
}

// look finds the entries and what memory says.
func (s *Store) look(c *call) {
	for i := range c.takes {
		t := &c.takes[i]
		if !t.NoLease && t.Lease == nil && suits(&t.Limit) {
			e := s.find(t, c.meet)
			if c.entries[i] = e; e != nil {
				if z := e.size.Load(); z.limit == t.Limit {
					c.says[i] = s.peek(e, z, t, &c.dst[i])
				}
			}
		}
		if c.says[i] == unknown {
			c.unknown++
		}
	}
}

// spendAll takes what the leases can pay. If the store has to be asked after all, it also
// decides what memory would deny: it may have found something by now, and it knows which
// takes of a call deny it.
func (s *Store) spendAll(c *call) {
	for i := range c.takes {
		t, e := &c.takes[i], c.entries[i]
		if c.says[i] != within || t.Look() {
			continue
		}
		c.windows[i] = e.window.Load()
		if s.take(e, e.size.Load(), t, &c.dst[i]) != within {
			c.says[i] = unknown
			c.unknown++
		}
	}
	for i := range c.takes {
		if c.says[i] != over {
			continue
		}
		if c.unknown > 0 && c.takes[i].Mode != backend.Shadow {
			c.says[i] = unknown
			c.unknown++
		} else {
			s.refused(c.entries[i], &c.takes[i])
		}
	}
}

// askRest asks the store for what is unknown, as one call.
func (s *Store) askRest(v *several) {
	v.rest, v.restEntries = make([]backend.Take, 0, v.unknown), make([]*entry, 0, v.unknown)
	v.restDst = make([]backend.Decision, v.unknown)
	takes, paid := v.takes, false
	for i := range takes {
		if v.says[i] == unknown {
			v.rest, v.restEntries = append(v.rest, takes[i]), append(v.restEntries, v.entries[i])
		} else if v.says[i] == within && takes[i].Mode == backend.Quota {
			paid = true
		}
	}
	for i := range v.rest {
		if paid && v.rest[i].Mode == backend.Quota {
			v.rest[i].Mode = backend.Shadow // one that is paid frees the others
		}
	}
	r := request{v.deadline, v.rest, v.restDst, v}
	if e := v.restEntries[0]; len(v.rest) == 1 && e != nil && plain(&v.rest[0]) {
		s.wait(e, r)
		return
	}
	s.forward(r, v.restEntries)
}

// giveBack undoes what a denied call took from leases.
func (s *Store) giveBack(c *call) {
	for i, e := range c.entries {
		if c.says[i] != within || c.takes[i].Look() {
			continue
		}
		d := &c.dst[i]
		e.mu.Lock()
		s.oweLocked(e, int64(d.Charged), c.windows[i])
		e.mu.Unlock()
		d.Level += float64(d.Charged)
		d.Charged = 0
	}
}

// forwarded is a call that the store decides as a whole.
type forwarded struct {
	request

	s       *Store
	entries []*entry // those of the takes; nil where there is none
	with    []backend.Take
	asks    []*ask // those beside the takes; nil where there is none
	sent    int64
}

// forward has takes decided by the store as one call. Leases that no ask is under way for
// go with it: what they hold is given back first, so that the store sees it.
func (s *Store) forward(r request, entries []*entry) {
	f := &forwarded{request: r, s: s, entries: entries, with: append([]backend.Take(nil), r.takes...), asks: make([]*ask, len(r.takes))}
	for i, e := range entries {
		if e != nil {
			if f.asks[i] = s.attach(e, &f.with[i]); f.asks[i] != nil {
				f.with[i].Lease = &f.asks[i].lease
			}
		}
	}
	f.sent = s.now()
	s.store.Start(r.deadline, f.with, r.dst, f)
}

// Done implements backend.Continuation.
func (f *forwarded) Done(err error) backend.Flusher {
	s := f.s
	var dirty backend.Flushers
	for i, e := range f.entries {
		d := &f.dst[i]
		switch {
		case e == nil:
			continue
		case f.asks[i] != nil:
			f.asks[i].dst[0] = *d
			l := s.land(e, f.asks[i], err)
			if l.more {
				s.ask(e, false)
			} else {
				s.flights.done()
			}
			dirty.Add(s.goOn(&l))
		case err == nil && d.Source == backend.Bucketed:
			s.heard(e, &f.takes[i], d, f.sent)
		}
		if err == nil && d.Source == backend.Bucketed {
			s.addOwn(e, &f.takes[i], d, len(f.takes) == 1)
		}
	}
	dirty.Add(f.then.Done(err))
	return dirty.Joined()
}

// attach begins an ask for an entry beside a take, if the entry has a lease or is worth one,
// and no ask is under way. A take that memory never decides makes no key worth a lease.
func (s *Store) attach(e *entry, t *backend.Take) *ask {
	e.mu.Lock()
	defer e.mu.Unlock()
	z := s.fitLocked(e, &t.Limit)
	if plain(t) {
		e.asked += int64(min(t.Hits, backend.MaxHits))
	}
	if e.dropped || e.busy.Load() || s.coldLocked(e, z) || !s.flights.begin() {
		return nil
	}
	if !e.busy.CompareAndSwap(false, true) {
		s.flights.done()
		return nil
	}
	a := &ask{s: s, e: e, size: z}
	a.takes[0] = *t
	s.beginLocked(e, a, false)
	return a
}

// heard keeps what the store said of a level, unless the take gave something back.
func (s *Store) heard(e *entry, t *backend.Take, d *backend.Decision, sent int64) {
	if z := e.size.Load(); t.Give > 0 {
		e.forget()
	} else if z.limit == t.Limit {
		e.hear(z, d, sent, s.now())
	}
}

// addOwn adds what the lease holds to a level that the store told. A look alone that the
// store denies is within its limit if the lease has a token.
func (s *Store) addOwn(e *entry, t *backend.Take, d *backend.Decision, alone bool) {
	have := e.tokens.Load()
	if have <= 0 || s.now() >= e.expires.Load() {
		return
	}
	e.size.Load().add(d, have)
	if alone && t.Look() && !d.OK {
		d.OK, d.Wait = true, 0
	}
}
