package failover

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

var _ backend.Starter = (*Pair)(nil)

// Pair is a store over two, each of which has some of the buckets: those of limits by the
// second lie in a Redis of their own, say. A call that needs both asks one after the other,
// within one budget; what the first charged goes back if the second denies the call.
type Pair struct {
	first, second backend.Starter
	inSecond      func(*backend.Limit) bool
	budget        time.Duration
}

// NewPair returns a store that has the buckets of some limits in second and all others in
// first. A call waits at most for the budget.
func NewPair(first, second backend.Store, inSecond func(*backend.Limit) bool, budget time.Duration) *Pair {
	return &Pair{first: backend.Starting(first), second: backend.Starting(second), inSecond: inSecond, budget: budget}
}

// Take implements backend.Store. Its errors are those of the two.
func (p *Pair) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	return backend.Await(ctx, p, takes, dst)
}

// Start implements backend.Starter.
func (p *Pair) Start(deadline time.Time, takes []backend.Take, dst []backend.Decision, then backend.Continuation) {
	if err := backend.Check(takes, dst); err != nil {
		backend.End(then, err)
		return
	}
	var first, second []int
	for i := range takes {
		if p.inSecond(&takes[i].Limit) {
			second = append(second, i)
		} else {
			first = append(first, i)
		}
	}
	switch {
	case len(second) == 0:
		p.first.Start(deadline, takes, dst, then)
	case len(first) == 0:
		p.second.Start(deadline, takes, dst, then)
	default:
		go func() {
			until := time.Now().Add(p.budget + margin)
			if !deadline.IsZero() && deadline.Before(until) {
				until = deadline
			}
			ctx, cancel := context.WithDeadline(context.Background(), until)
			defer cancel()
			backend.End(then, p.takeBoth(ctx, takes, dst, first, second))
		}()
	}
}

func (p *Pair) takeBoth(ctx context.Context, takes []backend.Take, dst []backend.Decision, first, second []int) error {
	asked, quota := withoutQuota(takes, first)
	got := make([]backend.Decision, len(asked))
	if err := p.first.Take(ctx, asked, got); err != nil {
		return err
	}
	paid := false
	for n, i := range first {
		dst[i] = got[n]
		paid = paid || takes[i].Mode == backend.Quota && got[n].OK
	}
	denied := backend.Denied(asked, got)
	rest := make([]backend.Take, 0, len(second)+2)
	for _, i := range second {
		rest = append(rest, takes[i])
	}
	rest = append(rest, standIns(rest[0].Key, denied, quota, paid)...)
	got = make([]backend.Decision, len(rest))
	err := p.second.Take(ctx, rest, got)
	for n, i := range second {
		dst[i] = got[n]
	}
	if err == nil && denied == backend.Denied(rest, got) {
		return nil
	}
	gives := undo(takes, dst, first)
	if len(gives) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.budget+margin)
	defer cancel()
	_ = p.first.Take(ctx, gives, make([]backend.Decision, len(gives))) // else they stay taken
	return err
}

// withoutQuota copies the takes with these indices for a store that has only a part of a
// call, and reports whether there are quota takes: all of the call deny it together, so no
// store alone can say.
func withoutQuota(takes []backend.Take, indices []int) (part []backend.Take, quota bool) {
	part = make([]backend.Take, len(indices))
	for n, i := range indices {
		part[n] = takes[i]
		if takes[i].Mode == backend.Quota {
			quota, part[n].Mode = true, backend.Shadow
		}
	}
	return part, quota
}

// standIns are takes of no bucket, in the slot of key, that tell a store what another said
// about the rest of its call: that it denies the call, and that there are quota takes, of
// which one was paid or none.
func standIns(key []byte, denied, quota, paid bool) []backend.Take {
	tag := key[:bytes.IndexByte(key, '}')+1]
	stand := func(t backend.Take, n int) backend.Take {
		t.Key, t.Limit = strconv.AppendInt(append(slices.Clone(tag), "!stand"...), int64(n), 10), unit
		return t
	}
	var takes []backend.Take
	if denied { // more than the capacity never passes
		takes = append(takes, stand(backend.Take{Hits: 2, OnFailure: backend.FailDeny}, 0))
	}
	switch {
	case quota && paid: // and a refund always does
		takes = append(takes, stand(backend.Take{Give: 1, Mode: backend.Quota, OnFailure: backend.FailAllow}, 1))
	case quota:
		takes = append(takes, stand(backend.Take{Hits: 2, Mode: backend.Quota, OnFailure: backend.FailDeny}, 1))
	}
	return takes
}

// undo takes what was charged for a call that is denied after all out of the decisions with
// these indices, debts aside, and returns the takes that give it back.
func undo(takes []backend.Take, dst []backend.Decision, indices []int) (gives []backend.Take) {
	for _, i := range indices {
		d := &dst[i]
		if d.Debt || d.Charged == 0 {
			continue
		}
		gives = append(gives, backend.Take{Key: slices.Clone(takes[i].Key), Limit: takes[i].Limit, Give: d.Charged})
		d.Level = min(d.Level+float64(d.Charged), takes[i].Limit.Capacity())
		d.Charged = 0
	}
	return gives
}
