package prefetch

import (
	"context"

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
}

// takeSeveral decides a call of several takes, or of none.
func (s *Store) takeSeveral(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	if len(takes) == 0 || len(takes) > some {
		return s.store.Take(ctx, takes, dst)
	}
	var room room
	c := room.call(takes, dst)
	if s.decided(ctx, &c) {
		return nil
	}
	s.spendAll(ctx, &c)
	if c.unknown == 0 {
		return nil
	}
	if err := s.askRest(ctx, &c); err != nil {
		s.giveBack(&c)
		return err
	}
	if backend.Denied(takes, dst) {
		s.giveBack(&c)
	}
	return nil
}

// takeSeveralNow is takeSeveral if memory decides; else it charges nothing and says false.
func (s *Store) takeSeveralNow(ctx context.Context, takes []backend.Take, dst []backend.Decision) bool {
	if len(takes) == 0 || len(takes) > some {
		return false
	}
	var room room
	c := room.call(takes, dst)
	if s.decided(ctx, &c) {
		return true
	}
	if c.unknown > 0 {
		return false
	}
	if s.spendAll(ctx, &c); c.unknown > 0 { // another call was faster
		s.giveBack(&c)
		return false
	}
	return true
}

// room is the memory of a call.
type room struct {
	entries [some]*entry
	says    [some]verdict
}

func (r *room) call(takes []backend.Take, dst []backend.Decision) call {
	return call{takes: takes, dst: dst, entries: r.entries[:len(takes)], says: r.says[:len(takes)]}
}

// decided reports whether memory denies the call. Then every decision is made; else every
// take is within, over or unknown.
func (s *Store) decided(ctx context.Context, c *call) bool {
	s.look(c)
	if c.unknown == 0 && backend.Denied(c.takes, c.dst) {
		for i, e := range c.entries {
			s.refused(ctx, e, &c.takes[i], s.now())
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
			e, hash := s.table.find(t.Key)
			if e == nil {
				e = s.enter(t, hash)
			}
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
func (s *Store) spendAll(ctx context.Context, c *call) {
	for i := range c.takes {
		t, e := &c.takes[i], c.entries[i]
		if c.says[i] != within || t.Look() {
			continue
		}
		if s.take(ctx, e, e.size.Load(), t, &c.dst[i]) != within {
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
			s.refused(ctx, c.entries[i], &c.takes[i], s.now())
		}
	}
}

// askRest asks the store for what is unknown, as one call.
func (s *Store) askRest(ctx context.Context, c *call) error {
	takes, dst := make([]backend.Take, 0, c.unknown), make([]backend.Decision, c.unknown)
	entries := make([]*entry, 0, c.unknown)
	paid := false
	for i := range c.takes {
		if c.says[i] == unknown {
			takes, entries = append(takes, c.takes[i]), append(entries, c.entries[i])
		} else if c.says[i] == within && c.takes[i].Mode == backend.Quota {
			paid = true
		}
	}
	for i := range takes {
		if paid && takes[i].Mode == backend.Quota {
			takes[i].Mode = backend.Shadow // one that is paid frees the others
		}
	}
	if err := s.askTogether(ctx, takes, dst, entries); err != nil {
		return err
	}
	n := 0
	for i := range c.takes {
		if c.says[i] == unknown {
			c.dst[i] = dst[n]
			n++
		}
	}
	return nil
}

func (s *Store) askTogether(ctx context.Context, takes []backend.Take, dst []backend.Decision, entries []*entry) error {
	if len(takes) == 1 && entries[0] != nil && plain(&takes[0]) {
		return s.wait(ctx, entries[0], &takes[0], takes, dst)
	}
	return s.forward(ctx, takes, dst, entries)
}

// giveBack undoes what a denied call took from leases.
func (s *Store) giveBack(c *call) {
	for i, e := range c.entries {
		if c.says[i] != within || c.takes[i].Look() {
			continue
		}
		d := &c.dst[i]
		e.mu.Lock()
		s.oweLocked(e, int64(d.Charged))
		e.mu.Unlock()
		d.Level += float64(d.Charged)
		d.Charged = 0
	}
}

// forward has takes decided by the store as one call. Leases that no ask is under way for
// go with it: what they hold is given back first, so that the store sees it.
func (s *Store) forward(ctx context.Context, takes []backend.Take, dst []backend.Decision, entries []*entry) error {
	with, asks := append([]backend.Take(nil), takes...), make([]*ask, len(takes))
	for i, e := range entries {
		if e != nil {
			if asks[i] = s.attach(e, &with[i]); asks[i] != nil {
				with[i].Lease = &asks[i].lease
			}
		}
	}
	sent := s.now()
	err := s.store.Take(ctx, with, dst)
	for i, e := range entries {
		switch {
		case e == nil:
		case asks[i] != nil:
			asks[i].dst[0] = dst[i]
			if s.land(ctx, e, asks[i], err) && !s.flights.start(func() { s.fly(ctx, e, false) }) {
				s.fly(ctx, e, false)
			}
		case err == nil && dst[i].Source == backend.Bucketed:
			s.heard(e, &takes[i], &dst[i], sent)
		}
		if e != nil && err == nil && dst[i].Source == backend.Bucketed {
			s.addOwn(e, &takes[i], &dst[i], len(takes) == 1)
		}
	}
	return err
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
	if e.dropped || e.busy.Load() || s.coldLocked(e, z) || !e.busy.CompareAndSwap(false, true) {
		return nil
	}
	a := &ask{size: z, take: *t}
	s.beginLocked(e, a, false)
	return a
}

// heard keeps what the store said of a level, unless the take gave something back.
func (s *Store) heard(e *entry, t *backend.Take, d *backend.Decision, sent int64) {
	if z := e.size.Load(); t.Give > 0 {
		e.forget()
	} else if z.limit == t.Limit {
		e.hear(z, d.Level, sent, s.now())
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
