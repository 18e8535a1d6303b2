package backend

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// Starter is a Store that can be asked by one who does not wait for it.
type Starter interface {
	Store
	// Start begins a Take and does not wait for it. takes, their keys and leases, and dst
	// are the store's until then.Done is called, which it is once: sooner or later, maybe
	// before Start returns. Takes of one bucket are decided in the order of their starts,
	// nearly always. A store that can decide by other means than its buckets does so
	// by the deadline at the latest; the zero time is none.
	Start(deadline time.Time, takes []Take, dst []Decision, then Continuation)
}

// Continuation is what goes on once a take is decided.
type Continuation interface {
	// Done is told of the end of a take, with the error that Take would have returned. It
	// runs in a goroutine that others wait for, so it must not wait itself. What it returns,
	// if it is not nil, is to be flushed once by whoever called Done, after all that was
	// done at the same time.
	Done(err error) Flusher
}

// Flusher is what several continuations that end at the same time have in common, a
// connection to which all of them write for one. It is comparable.
type Flusher interface {
	// Flush does what was put off. It does not wait.
	Flush()
}

// Flushers are those to be flushed, each once. The zero value is empty.
type Flushers struct {
	list []Flusher
}

// Add adds one, unless it is nil or there already.
func (f *Flushers) Add(one Flusher) {
	if one != nil && !slices.Contains(f.list, one) {
		f.list = append(f.list, one)
	}
}

// Flush flushes all of them, after which there are none.
func (f *Flushers) Flush() {
	for _, one := range f.list {
		one.Flush()
	}
	clear(f.list)
	f.list = f.list[:0]
}

// Joined is one that flushes all of them, after which there are none here; nil if there were
// none.
func (f *Flushers) Joined() Flusher {
	list := f.list
	f.list = nil
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	default:
		return &Flushers{list}
	}
}

// End tells a continuation of its end, and flushes what that left.
func End(then Continuation, err error) {
	if f := then.Done(err); f != nil {
		f.Flush()
	}
}

// Starting is the store itself if it is a Starter, else one that starts each take in a
// goroutine of its own.
func Starting(s Store) Starter {
	if starter, ok := s.(Starter); ok {
		return starter
	}
	return goStarter{s}
}

// PanicError is what becomes of a take whose store has panicked.
type PanicError struct {
	Value any    // that of the panic
	Stack []byte // where it was
}

// Error names the value.
func (e *PanicError) Error() string { return fmt.Sprintf("taking: panic: %v", e.Value) }

// goStarter makes a Starter of a Store.
type goStarter struct{ Store }

// Start implements Starter. A panic of the store is an error of this take alone, since
// nobody above the goroutine would catch it.
func (g goStarter) Start(deadline time.Time, takes []Take, dst []Decision, then Continuation) {
	go func() {
		ctx := context.Background()
		if !deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
		End(then, g.take(ctx, takes, dst))
	}()
}

func (g goStarter) take(ctx context.Context, takes []Take, dst []Decision) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{p, debug.Stack()}
		}
	}()
	return g.Take(ctx, takes, dst)
}

// Await is Take by Start. If ctx ends first it returns its error, and what comes of the
// takes is lost.
func Await(ctx context.Context, s Starter, takes []Take, dst []Decision) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("taking: the caller has left: %w", err)
	}
	if len(takes) != len(dst) {
		return Check(takes, dst)
	}
	a := newAwaited(takes)
	deadline, _ := ctx.Deadline()
	s.Start(deadline, a.takes, a.dst, a)
	select {
	case err := <-a.done:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		select {
		case err := <-a.done: // it came at the same moment
			if err != nil {
				return err
			}
		default:
			return fmt.Errorf("taking: the caller has left: %w", ctx.Err())
		}
	}
	copy(dst, a.dst)
	for i := range takes {
		if takes[i].Lease != nil {
			*takes[i].Lease = *a.takes[i].Lease
		}
	}
	return nil
}

// awaited is a call that somebody waits for. It owns all that it holds, since its caller
// may leave.
type awaited struct {
	takes []Take
	dst   []Decision
	done  chan error

	oneTake [1]Take
	oneDst  [1]Decision
}

func newAwaited(takes []Take) *awaited {
	a := &awaited{done: make(chan error, 1)}
	a.takes, a.dst = append(a.oneTake[:0], takes...), a.oneDst[:]
	if len(takes) != 1 {
		a.dst = make([]Decision, len(takes))
	}
	CloneKeys(a.takes, nil)
	for i := range a.takes {
		if lease := a.takes[i].Lease; lease != nil {
			a.takes[i].Lease = new(*lease)
		}
	}
	return a
}

// Done implements Continuation.
func (a *awaited) Done(err error) Flusher {
	a.done <- err
	return nil
}

// CloneKeys gives takes keys of their own, one behind the other in room, which it returns
// as it has grown.
func CloneKeys(takes []Take, room []byte) []byte {
	size := 0
	for i := range takes {
		size += len(takes[i].Key)
	}
	if cap(room) < size {
		room = make([]byte, 0, size)
	}
	room = room[:0]
	for i := range takes {
		start := len(room)
		room = append(room, takes[i].Key...)
		takes[i].Key = room[start:len(room):len(room)]
	}
	return room
}
