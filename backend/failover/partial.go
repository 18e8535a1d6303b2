package failover

import (
	"errors"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// some is a call some of whose takes lie on servers that are away. The store is asked for
// the others first; what stands in for the rest knows then what came of them.
type some struct {
	s     *Store
	takes []backend.Take
	dst   []backend.Decision
	then  backend.Continuation
	began time.Time

	up, down []int // places of takes
	asked    []backend.Take
	quota    bool
}

func (s *Store) startSome(began, until time.Time, takes []backend.Take, dst []backend.Decision, then backend.Continuation) backend.Flusher {
	c := &some{s: s, takes: takes, dst: dst, then: then, began: began}
	for i := range takes {
		if s.servers.of(s.o.Server(takes[i].Key)).open.Load() {
			c.down = append(c.down, i)
		} else {
			c.up = append(c.up, i)
		}
	}
	switch { // a breaker may have moved meanwhile
	case len(c.down) == 0:
		return s.startAll(began, until, takes, dst, then)
	case s.o.Refuse || len(c.up) == 0:
		return then.Done(s.stand(takes, dst, nil, errBreaker, began))
	}
	c.asked, c.quota = withoutQuota(takes, c.up)
	return s.ask(s.newJob(c.asked), began, until, c)
}

// decided implements waiter.
func (c *some) decided(j *job, err error) backend.Flusher {
	if err != nil {
		c.stand(j, err)
	} else {
		c.settle(j)
	}
	return c.then.Done(nil)
}

// stand decides all takes without the store.
func (c *some) stand(j *job, err error) {
	s := c.s
	s.o.Observe(kind(err), time.Since(c.began))
	s.local.decide(c.takes, c.dst, s.OnFailure(), s.o.Instances())
	if !errors.Is(err, errLate) {
		return
	}
	got := make([]backend.Decision, len(c.up))
	for n, i := range c.up {
		got[n] = c.dst[i]
	}
	s.settle(j, backend.Denied(c.takes, c.dst), got)
}

// settle decides the takes that the store was not asked for.
func (c *some) settle(j *job) {
	s := c.s
	s.o.Observe(errBreaker.kind, time.Since(c.began))
	paid := false
	for n, i := range c.up {
		c.dst[i] = j.dst[n]
		if c.takes[i].Lease != nil {
			*c.takes[i].Lease = j.leases[n]
		}
		paid = paid || c.takes[i].Mode == backend.Quota && j.dst[n].OK
	}
	denied := backend.Denied(c.asked, j.dst)
	if s.decideRest(c.takes, c.dst, c.down, denied, c.quota, paid) && !denied {
		s.giveBack(undo(c.takes, c.dst, c.up))
	}
}

// decideRest decides the takes whose indices are in down, of a call the rest of which the
// store has decided, and reports whether the call is denied.
func (s *Store) decideRest(takes []backend.Take, dst []backend.Decision, down []int, denied, quota, paid bool) bool {
	rest := make([]backend.Take, 0, len(down)+2)
	for _, i := range down {
		rest = append(rest, takes[i])
	}
	rest = append(rest, standIns(rest[0].Key, denied, quota, paid)...)
	got := make([]backend.Decision, len(rest))
	s.local.decide(rest, got, s.OnFailure(), s.o.Instances())
	for n, i := range down {
		dst[i] = got[n]
	}
	return backend.Denied(rest, got)
}
