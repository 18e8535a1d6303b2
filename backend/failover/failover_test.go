package failover_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/failover"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/backend/storetest"
)

func TestSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (backend.Store, func(time.Duration)) {
		t.Helper()
		now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		inner := memstore.New(memstore.Options{Now: func() time.Time { return now }})
		return failover.New(inner, failover.Options{Budget: time.Minute}), func(d time.Duration) { now = now.Add(d) }
	})
}

// stub is a store of one function.
type stub func(ctx context.Context) error

// Take implements backend.Store.
func (f stub) Take(ctx context.Context, _ []backend.Take, _ []backend.Decision) error { return f(ctx) }

// hung answers only when it must.
func hung(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// observed is what Observe was told.
type observed struct {
	kind string
	took time.Duration
}

func TestTakeIsInTime(t *testing.T) {
	f := func(name string, budget, caller, want time.Duration) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []observed
				s := failover.New(stub(hung), failover.Options{Budget: budget, Observe: func(kind string, took time.Duration) {
					got = append(got, observed{kind, took})
				}})
				ctx := t.Context()
				if caller != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, caller)
					defer cancel()
				}
				if err := s.Take(ctx, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Take: %v, want a deadline that is over", err)
				}
				if len(got) != 1 || got[0] != (observed{"timeout", want}) {
					t.Errorf("observed %v, want one timeout after %v", got, want)
				}
			})
		})
	}
	const ms = time.Millisecond
	f("default budget", 0, 0, 5*ms)
	f("a budget of one's own", 70*ms, 0, 70*ms)
	f("the caller has longer", 5*ms, 20*ms, 5*ms)
	f("the caller has less", 50*ms, 20*ms, 18*ms)
	f("the caller has little", 50*ms, 3*ms, 2*ms)
	f("the caller has nothing left", 50*ms, ms, 0)
}

type kindError struct{ error }

func (kindError) Kind() string { return "pool" }

func TestTakeErrors(t *testing.T) {
	left, leave := context.WithCancel(t.Context())
	leave()
	f := func(ctx context.Context, inner error, wantText, wantKind string) {
		t.Helper()
		kinds, asked := "", false
		s := failover.New(
			stub(func(context.Context) error { asked = true; return inner }),
			failover.Options{Observe: func(kind string, _ time.Duration) { kinds += kind }})
		err := s.Take(ctx, nil, nil)
		if err == nil || !strings.Contains(err.Error(), wantText) || kinds != wantKind {
			t.Errorf("Take: %v, observed %q, want %q of kind %q", err, kinds, wantText, wantKind)
		}
		if asked == (ctx == left) {
			t.Errorf("the store was asked: %v", asked)
		}
	}
	f(t.Context(), kindError{errors.New("no free connection")}, "no free connection", "pool")
	f(t.Context(), errors.New("whatever"), "whatever", "other")
	f(left, nil, "the caller has left", "canceled")
}
