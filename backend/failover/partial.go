package failover

import (
	"context"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// takeSome decides a call some of whose takes lie on servers that are away. The store is
// asked for the others first; what stands in for the rest knows then what came of them.
func (s *Store) takeSome(ctx context.Context, began time.Time, wait time.Duration, takes []backend.Take, dst []backend.Decision) error {
	var up, down []int
	for i := range takes {
		if s.servers.of(s.o.Server(takes[i].Key)).open.Load() {
			down = append(down, i)
		} else {
			up = append(up, i)
		}
	}
	switch { // a breaker may have moved meanwhile
	case len(down) == 0:
		return s.takeAll(ctx, began, wait, takes, dst)
	case s.o.Refuse || len(up) == 0:
		return s.stand(takes, dst, nil, errBreaker, began)
	}
	asked, quota := withoutQuota(takes, up)
	got := make([]backend.Decision, len(up))
	j, err := s.ask(ctx, began, wait, asked, got)
	if err != nil {
		s.o.Observe(kind(err), time.Since(began))
		s.local.decide(takes, dst, s.OnFailure(), s.o.Instances())
		if j != nil {
			for n, i := range up {
				got[n] = dst[i]
			}
			s.settle(j, backend.Denied(takes, dst), got)
		}
		return nil
	}
	s.o.Observe(errBreaker.kind, time.Since(began))
	paid := false
	for n, i := range up {
		dst[i] = got[n]
		paid = paid || takes[i].Mode == backend.Quota && got[n].OK
	}
	denied := backend.Denied(asked, got)
	if s.decideRest(takes, dst, down, denied, quota, paid) && !denied {
		s.giveBack(ctx, undo(takes, dst, up))
	}
	return nil
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
