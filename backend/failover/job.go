package failover

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// The states of a job.
const (
	waiting  = iota // somebody waits for it
	answered        // it is done, and the waiter has it or will
	left            // the waiter left first
	settled         // the waiter left, and one of the two has nothing more to say
)

// job is a call on its way to the store. It owns all that it holds, since its waiter may
// leave.
type job struct {
	s     *Store
	takes []backend.Take
	keys  []byte // those of takes
	// leases are those of takes: the store writes to them, at a time at which the waiter may
	// have left.
	leases []backend.Lease
	dst    []backend.Decision
	// debts are charged first: what local buckets let through.
	debts []backend.Take
	sent  time.Time
	err   error
	state atomic.Int32

	// waiter is told how it ended.
	waiter waiter
	whole  whole

	// began is when the waiter came, and until when it leaves. The list of all who wait has
	// before and after.
	began, until  time.Time
	before, after *job

	// charges are those that the waiter answered with, of each take, once it has left;
	// refused are the takes whose call it denied.
	charges []uint64
	refused []bool
}

// waiter waits for a job.
type waiter interface {
	// decided is told how a job ended. The job's decisions hold until it returns if there is
	// no error. After errLate the job goes on, and is to be given to settle.
	decided(j *job, err error) backend.Flusher
}

// nobody waits for an answer.
type nobody struct{}

func (nobody) decided(*job, error) backend.Flusher { return nil }

// newJob copies a call.
func (s *Store) newJob(takes []backend.Take) *job {
	j, _ := s.jobs.Get().(*job)
	j.err = nil
	j.state.Store(waiting)
	j.takes, j.debts = append(j.takes[:0], takes...), j.debts[:0]
	j.keys = backend.CloneKeys(j.takes, j.keys)
	if cap(j.leases) < len(takes) {
		j.leases = make([]backend.Lease, len(takes))
	}
	j.leases = j.leases[:len(takes)]
	for i := range j.takes {
		if lease := takes[i].Lease; lease != nil {
			j.leases[i] = *lease
			j.takes[i].Lease = &j.leases[i]
		}
	}
	if cap(j.dst) < len(takes) {
		j.dst = make([]backend.Decision, len(takes))
	}
	j.dst = j.dst[:len(takes)]
	clear(j.dst)
	return j
}

// release gives a job back that nobody uses any more.
func (s *Store) release(j *job) {
	clear(j.takes)
	clear(j.debts)
	j.waiter, j.whole = nil, whole{}
	s.jobs.Put(j)
}

// ask sends a call to the store. w is told of the answer, or at the time until, the zero
// time being never, that there is none.
func (s *Store) ask(j *job, began, until time.Time, w waiter) backend.Flusher {
	j.waiter, j.began, j.until = w, began, until
	if !s.admit() {
		return s.end(j, errFull)
	}
	j.debts = s.local.collect(j.takes, j.debts)
	if !until.IsZero() {
		s.patience.add(j)
	}
	s.send(j)
	return nil
}

// admit counts a job in flight, and reports false if there are too many.
func (s *Store) admit() bool {
	s.running.Add(1)
	if s.flying.Add(1) <= int64(s.o.MaxInFlight) {
		return true
	}
	s.flying.Add(-1)
	s.running.Done()
	return false
}

// send starts a job. A panic of the store is an error of this call alone.
func (s *Store) send(j *job) {
	defer func() {
		if p := recover(); p != nil {
			backend.End(j, &backend.PanicError{Value: p, Stack: debug.Stack()})
		}
	}()
	j.sent = time.Now()
	if len(j.debts) == 0 {
		s.store.Start(j.sent.Add(s.o.Linger), j.takes, j.dst, j)
		return
	}
	d := &debts{s: s, takes: slices.Clone(j.debts), dst: make([]backend.Decision, len(j.debts))}
	backend.CloneKeys(d.takes, nil)
	s.running.Add(1)
	if !s.ordered {
		d.next = j
	}
	s.store.Start(j.sent.Add(s.o.Linger), d.takes, d.dst, d)
	if s.ordered {
		s.store.Start(j.sent.Add(s.o.Linger), j.takes, j.dst, j)
	}
}

// debts are charges of what local buckets let through.
type debts struct {
	s     *Store
	takes []backend.Take
	dst   []backend.Decision
	next  *job // to be started when they are paid; nil: it is on its way
}

// Done implements backend.Continuation.
func (d *debts) Done(err error) backend.Flusher {
	s := d.s
	defer s.running.Done()
	if err != nil {
		s.local.putBack(d.takes, s.o.Instances())
	}
	switch {
	case d.next == nil:
		return nil
	case err != nil:
		return d.next.Done(err)
	}
	s.store.Start(d.next.sent.Add(s.o.Linger), d.next.takes, d.next.dst, d.next)
	return nil
}

// Done implements backend.Continuation: the store has answered.
func (j *job) Done(err error) backend.Flusher {
	s := j.s
	j.err = err
	if p, ok := errors.AsType[*backend.PanicError](err); ok {
		s.log.Error("panic in the store", slog.Any("panic", p.Value), slog.String("stack", string(p.Stack)))
	}
	took := time.Since(j.sent)
	s.o.Took(took)
	if server := s.o.Server(j.takes[0].Key); !s.o.Told || server == "" && err != nil {
		s.Answered(server, took, err)
	}
	if err == nil {
		for i := range j.takes {
			s.levels.note(&j.takes[i], &j.dst[i])
		}
		s.local.forget(j.takes)
	}
	s.flying.Add(-1)
	defer s.running.Done()
	if !j.state.CompareAndSwap(waiting, answered) {
		s.finish(j)
		return nil
	}
	s.patience.remove(j)
	return s.end(j, err)
}

// end tells the waiter of a job that nobody else knows of any more.
func (s *Store) end(j *job, err error) backend.Flusher {
	f := j.waiter.decided(j, err)
	s.release(j)
	return f
}

// leave makes the waiter of a job leave that was not answered in time. The job goes on.
func (s *Store) leave(j *job) backend.Flusher {
	defer s.running.Done()
	s.silent(j.takes, j.began)
	return j.waiter.decided(j, errLate)
}

// whole is the waiter for the job of a whole call, whose takes and decisions it has.
type whole struct {
	takes []backend.Take
	dst   []backend.Decision
	then  backend.Continuation
	began time.Time
}

func (w *whole) decided(j *job, err error) backend.Flusher {
	if err != nil {
		late := j
		if !errors.Is(err, errLate) {
			late = nil
		}
		return w.then.Done(j.s.stand(w.takes, w.dst, late, err, w.began))
	}
	copy(w.dst, j.dst)
	for i := range w.takes {
		if w.takes[i].Lease != nil {
			*w.takes[i].Lease = j.leases[i]
		}
	}
	return w.then.Done(nil)
}

// settle is told by the waiter how a call was answered whose job it has left: dst are the
// decisions of the job's takes. What local buckets let through is owed only once it is
// known that the store did not charge it.
func (s *Store) settle(j *job, denied bool, dst []backend.Decision) {
	j.charges, j.refused = j.charges[:0], j.refused[:0]
	for i := range dst {
		paid := uint64(0)
		if dst[i].Source == backend.LocalShare {
			paid = dst[i].Charged
			s.local.owe(j.takes[i].Key, -float64(paid))
		}
		j.charges = append(j.charges, paid)
		j.refused = append(j.refused, denied && !dst[i].Debt)
	}
	s.finish(j)
}

// finish is called by the store's answer and by the waiter that left; the second of them
// knows both.
func (s *Store) finish(j *job) {
	if j.state.CompareAndSwap(left, settled) {
		return
	}
	var gives []backend.Take
	for i := range j.takes {
		t, charged := j.takes[i], j.dst[i].Charged
		if j.err != nil {
			charged = 0 // as far as anybody knows
		}
		switch {
		case charged > 0 && j.refused[i]:
			gives = append(gives, backend.Take{Key: t.Key, Limit: t.Limit, Give: charged})
			continue
		case charged > j.charges[i] && t.Lease != nil && t.Lease.Calls > 1:
			// Of several calls, one was answered here; the others have asked again.
			gives = append(gives, backend.Take{Key: t.Key, Limit: t.Limit, Give: charged - j.charges[i]})
		}
		if j.charges[i] > charged {
			s.local.lend(&t, float64(j.charges[i]-charged), s.o.Instances())
		}
	}
	s.giveBack(gives)
}

// giveBack returns tokens of a denied call, with nobody waiting. If that fails they stay
// taken.
func (s *Store) giveBack(gives []backend.Take) {
	if len(gives) > 0 {
		s.ask(s.newJob(gives), time.Time{}, time.Time{}, nobody{})
	}
}

// Start implements backend.Starter: it is over within the budget, and by the deadline less a
// margin in which the caller can still be answered.
func (s *Store) Start(deadline time.Time, takes []backend.Take, dst []backend.Decision, then backend.Continuation) {
	if err := backend.Check(takes, dst); err != nil || len(takes) == 0 {
		backend.End(then, err)
		return
	}
	if f := s.start(deadline, takes, dst, then); f != nil {
		f.Flush()
	}
}

func (s *Store) start(deadline time.Time, takes []backend.Take, dst []backend.Decision, then backend.Continuation) backend.Flusher {
	began := time.Now()
	away := s.away(takes)
	if away == len(takes) {
		return then.Done(s.stand(takes, dst, nil, errBreaker, began))
	}
	wait := s.wait(deadline, began)
	if wait <= 0 {
		return then.Done(s.stand(takes, dst, nil, errNoTime, began))
	}
	if away > 0 {
		return s.startSome(began, began.Add(wait), takes, dst, then)
	}
	return s.startAll(began, began.Add(wait), takes, dst, then)
}

// startAll asks the store for a whole call.
func (s *Store) startAll(began, until time.Time, takes []backend.Take, dst []backend.Decision, then backend.Continuation) backend.Flusher {
	j := s.newJob(takes)
	j.whole = whole{takes: takes, dst: dst, then: then, began: began}
	return s.ask(j, began, until, &j.whole)
}

// Take implements backend.Store. Its only errors are those of a caller that has left, of
// takes that backend.Check refuses, and ErrUnavailable with Options.Refuse.
func (s *Store) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	return backend.Await(ctx, s, takes, dst)
}
