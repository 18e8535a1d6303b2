package redisstore

import (
	"sync"

	"github.com/sluice-rls/sluice/backend"
)

// several is a call whose takes go to more than one script. Each of them charges its own
// part. Once all have answered, what must not have been charged is given back, and what was
// to be given in a call that passes is given.
type several struct {
	store *Store
	takes []backend.Take
	dst   []backend.Decision
	then  backend.Continuation
	// settling says that the parts are those that give, and after what they are told.
	settling bool
	gives    []backend.Take
	after    []backend.Decision
	failed   error // what the first parts came to
	// keys and place are those of the takes of each part, and slots those of the parts.
	keys  [][]string
	place [][]int
	slots []uint16

	mu   sync.Mutex // guards the rest
	left int        // parts that have not answered
	err  error      // the first of them
}

// startSeveral sends the parts of a call side by side.
func (s *Store) startSeveral(all []*part, takes []backend.Take, dst []backend.Decision, then backend.Continuation) {
	c := &several{store: s, takes: takes, dst: dst, then: then, left: len(all)}
	for _, p := range all {
		p.several = c
		c.keys = append(c.keys, append([]string(nil), p.keys...))
		c.place = append(c.place, append([]int(nil), p.indices...))
		c.slots = append(c.slots, p.slot)
	}
	for _, p := range all {
		s.send(p)
	}
}

// ended is told of the end of a part. The last one goes on with the call.
func (c *several) ended(p *part, err error) backend.Flusher {
	if err != nil {
		for _, i := range p.indices {
			p.dst[i] = backend.Decision{} // as far as anybody knows, it charged nothing
		}
	}
	if err != nil && c.settling {
		for _, i := range p.indices {
			c.store.kept.Add(c.gives[i].Give)
		}
	}
	p.release()
	c.mu.Lock()
	c.left--
	if c.err == nil {
		c.err = err
	}
	last := c.left == 0
	c.mu.Unlock()
	switch {
	case !last:
		return nil
	case c.settling:
		return c.settled()
	default:
		return c.settle()
	}
}

// settle gives back what must go back. A call that failed, which others decide, does not
// wait for that.
func (c *several) settle() backend.Flusher {
	c.failed = c.err
	if c.failed != nil {
		c.gives = refunds(c.takes, c.dst)
	} else {
		c.gives = owed(c.takes, c.dst)
	}
	c.settling = true
	all := c.giving()
	then, failed := c.then, c.failed
	for _, p := range all {
		c.store.send(p)
	}
	if failed == nil && len(all) > 0 {
		return nil
	}
	return then.Done(failed)
}

// giving makes the parts that give.
func (c *several) giving() (all []*part) {
	c.after = make([]backend.Decision, len(c.gives))
	for n, place := range c.place {
		var p *part
		for k, i := range place {
			if c.gives[i].Give == 0 {
				continue
			}
			if p == nil {
				p = newPart(c.after)
				p.slot, p.several = c.slots[n], c
			}
			p.add(i, c.keys[n][k], &c.gives[i])
		}
		if p != nil {
			all = append(all, p)
		}
	}
	c.left = len(all)
	return all
}

// settled brings the levels of the decisions up to date, and goes on with the call if that
// still waits.
func (c *several) settled() backend.Flusher {
	if c.failed != nil {
		return nil
	}
	for i := range c.gives {
		if c.err == nil && c.gives[i].Give > 0 {
			c.dst[i].Level, c.dst[i].Full = c.after[i].Level, c.after[i].Full
		}
	}
	return c.then.Done(nil)
}

// refunds returns, for each take of a call that failed, the one that gives back what it took.
func refunds(takes []backend.Take, dst []backend.Decision) []backend.Take {
	gives := make([]backend.Take, len(takes))
	for i := range takes {
		gives[i].Limit, gives[i].Give = takes[i].Limit, dst[i].Charged
	}
	return gives
}

// owed returns, for each take, the one that puts back what is to be put back, and takes
// what a denied call did not charge out of its decisions.
func owed(takes []backend.Take, dst []backend.Decision) []backend.Take {
	denied := backend.Denied(takes, dst)
	gives := make([]backend.Take, len(takes))
	for i := range takes {
		gives[i].Limit = takes[i].Limit
		switch {
		case denied && !dst[i].Debt:
			gives[i].Give = dst[i].Charged
			dst[i].Charged = 0
		case !denied && (dst[i].OK || dst[i].Debt):
			gives[i].Give = takes[i].Give
		}
	}
	return gives
}
