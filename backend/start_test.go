package backend_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// slow is a store that decides nothing in less than a second, or before its context ends. It
// changes what belongs to it until then.
type slow struct{}

func (slow) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	for i := range takes {
		dst[i] = backend.Decision{OK: string(takes[i].Key) == "key"}
		if takes[i].Lease != nil {
			takes[i].Lease.Granted = 7
		}
	}
	return nil
}

// told is a continuation that says what it was told.
type told chan error

func (c told) Done(err error) backend.Flusher {
	c <- err
	return nil
}

func TestStartingAnyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, then := backend.Starting(slow{}), make(told, 1)
		takes, dst := []backend.Take{{Key: []byte("key")}}, make([]backend.Decision, 1)
		s.Start(time.Time{}, takes, dst, then)
		if err := <-then; err != nil || !dst[0].OK {
			t.Errorf("Start: %v, %+v", err, dst[0])
		}
		began := time.Now()
		s.Start(began.Add(10*time.Millisecond), takes, dst, then)
		if err := <-then; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 10*time.Millisecond {
			t.Errorf("Start: %v after %v, want an error at the deadline", err, time.Since(began))
		}
		if again := backend.Starting(s); again != s {
			t.Error("Starting of a Starter is another one")
		}
	})
}

type panicking struct{}

func (panicking) Take(context.Context, []backend.Take, []backend.Decision) error { panic("boom") }

func TestAPanicOfAStoreIsAnError(t *testing.T) {
	then := make(told, 1)
	backend.Starting(panicking{}).Start(time.Time{}, nil, nil, then)
	err := <-then
	if p, ok := errors.AsType[*backend.PanicError](err); !ok || p.Value != "boom" || len(p.Stack) == 0 || p.Error() != "taking: panic: boom" {
		t.Errorf("Start: %v, want a PanicError", err)
	}
}

// A caller that leaves may use its own again at once.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := backend.Starting(slow{})
		lease := &backend.Lease{}
		takes, dst := []backend.Take{{Key: []byte("key"), Lease: lease}, {Key: []byte("other")}}, make([]backend.Decision, 2)
		if err := backend.Await(t.Context(), s, takes, dst); err != nil || !dst[0].OK || dst[1].OK || lease.Granted != 7 {
			t.Errorf("Await: %v, %+v, %d granted", err, dst, lease.Granted)
		}
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, leave)
		*lease = backend.Lease{}
		clear(dst)
		err := backend.Await(ctx, s, takes, dst)
		takes[0].Key[0] = '?' // the race detector watches
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Await: %v, want that the caller has left", err)
		}
		time.Sleep(2 * time.Second)
		if dst[0].OK || lease.Granted != 0 {
			t.Errorf("%+v and %d granted after the caller has left", dst[0], lease.Granted)
		}
		if err := backend.Await(ctx, s, takes, dst); !errors.Is(err, context.Canceled) {
			t.Errorf("Await: %v of one who is not there", err)
		}
		if err := backend.Await(t.Context(), s, takes, dst[:1]); err == nil {
			t.Error("Await with too few decisions")
		}
	})
}

// line counts how often it is flushed.
type line struct{ flushed int }

func (l *line) Flush() { l.flushed++ }

func TestFlushers(t *testing.T) {
	var a, b line
	var f backend.Flushers
	if f.Joined() != nil {
		t.Error("Joined of nothing is something")
	}
	f.Add(nil)
	f.Add(&a)
	f.Add(&a)
	if f.Joined() != backend.Flusher(&a) {
		t.Error("Joined of one is not that one")
	}
	f.Add(&a)
	f.Add(&b)
	f.Joined().Flush()
	if a.flushed != 1 || b.flushed != 1 {
		t.Errorf("flushed %d and %d times, want once each", a.flushed, b.flushed)
	}
	f.Add(&a)
	f.Flush()
	f.Flush()
	if a.flushed != 2 {
		t.Errorf("flushed %d times, want twice", a.flushed)
	}
}
