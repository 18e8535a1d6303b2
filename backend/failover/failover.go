// Package failover stands before a store that can be slow or away, and sees to it that a
// call is answered in time: no take waits longer than the budget, or than the caller does
// less a margin in which the caller can still be answered. What is answered then is the
// caller's business, by the choice of each rule.
package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

var _ backend.Store = (*Store)(nil)

// margin is the least part of the caller's time that is kept for the answer; a tenth if
// that is more.
const margin = time.Millisecond

// Options are the settings of a Store; their zero values are the defaults.
type Options struct {
	// Budget is the longest that a take may last; 5 ms if 0.
	Budget time.Duration
	// Observe is told of each take that failed: what kind of error it was, and how long it
	// took to fail. The kind is what the error's method Kind says, "timeout" or "canceled"
	// for those of a context, else "other". Nil: nobody is told.
	Observe func(kind string, took time.Duration)
}

// Store is a backend.Store over another. Make one with New.
type Store struct {
	store   backend.Store
	budget  time.Duration
	observe func(kind string, took time.Duration)
}

// New returns a store over another.
func New(store backend.Store, o Options) *Store {
	if o.Budget == 0 {
		o.Budget = 5 * time.Millisecond
	}
	if o.Observe == nil {
		o.Observe = func(string, time.Duration) {}
	}
	return &Store{store: store, budget: o.Budget, observe: o.Observe}
}

// Take implements backend.Store. An error says that the store gave no answer in time, or
// an error of its own, which is wrapped. If the caller has left or has no time left, the
// store is not asked.
func (s *Store) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	began := time.Now()
	err := s.take(ctx, began, takes, dst)
	if err != nil {
		s.observe(kind(err), time.Since(began))
	}
	return err
}

func (s *Store) take(ctx context.Context, began time.Time, takes []backend.Take, dst []backend.Decision) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("taking: the caller has left: %w", err)
	}
	end := began.Add(s.budget)
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(began)
		left -= max(margin, left/10)
		if left <= 0 {
			return fmt.Errorf("taking: the caller has no time left: %w", context.DeadlineExceeded)
		}
		if latest := began.Add(left); latest.Before(end) {
			end = latest
		}
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	return s.store.Take(ctx, takes, dst)
}

// kind names an error for metrics.
func kind(err error) string {
	if of, ok := errors.AsType[interface {
		error
		Kind() string
	}](err); ok {
		return of.Kind()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	default:
		return "other"
	}
}
