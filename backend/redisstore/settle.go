package redisstore

import (
	"context"

	"github.com/sluice-rls/sluice/backend"
)

// settle completes a call whose scripts have each charged their own part: in a denied
// call it gives back what they took, debts aside; in one that passes it gives what the
// takes say. It returns once that is done, or the caller's context is over: the giving
// goes on then, and the levels of the answer are what they will be.
func (s *Store) settle(ctx context.Context, batches []batch, takes []backend.Take, dst []backend.Decision) {
	gives := owed(takes, dst)
	returns := returning(batches, gives)
	if len(returns) == 0 {
		return
	}
	after := make([]backend.Decision, len(takes))
	done := make(chan struct{})
	var failed error
	s.settling.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
		defer cancel()
		if failed = s.runAll(ctx, returns, gives, false, after); failed != nil {
			for i := range gives {
				s.kept.Add(gives[i].Give)
			}
		}
	})
	select {
	case <-done:
		for i := range gives {
			if failed == nil && gives[i].Give > 0 {
				dst[i].Level, dst[i].Full = after[i].Level, after[i].Full
			}
		}
	case <-ctx.Done():
		for i := range gives {
			dst[i].Level = min(dst[i].Level+float64(gives[i].Give), float64(gives[i].Limit.Burst))
		}
	}
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

// returning picks the takes of batches that give something.
func returning(batches []batch, gives []backend.Take) []batch {
	var returns []batch
	for _, b := range batches {
		var back batch
		for n, i := range b.indices {
			if gives[i].Give > 0 {
				back.add(i, b.args[argKeys+n].(string)) //nolint:errcheck // add put a string there
			}
		}
		if len(back.indices) > 0 {
			returns = append(returns, back)
		}
	}
	return returns
}
