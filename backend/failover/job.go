package failover

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// The states of a job.
const (
	waiting  = iota // its waiter waits
	answered        // it is done, and the waiter has it or will
	left            // the waiter left first
	settled         // the waiter left, and one of the two has nothing more to say
)

// job is a call on its way to the store. It owns all that it holds, since the caller may
// leave and use its own again.
type job struct {
	ctx   context.Context
	takes []backend.Take
	keys  []byte // those of takes
	// leases are those of takes: the store writes to them, at a time at which the caller may
	// have left.
	leases []backend.Lease
	dst    []backend.Decision
	// debts are charged first: what local buckets let through.
	debts []backend.Take
	err   error

	state atomic.Int32
	done  chan struct{} // one element once the state is answered
	// paid are the charges that the waiter answered with, of each take, once it has left;
	// refused are the takes whose call it denied.
	paid    []uint64
	refused []bool
}

// newJob copies a call. The job's context is the caller's values and not its end.
func (s *Store) newJob(ctx context.Context, takes []backend.Take) *job {
	j, _ := s.jobs.Get().(*job)
	j.ctx, j.err = context.WithoutCancel(ctx), nil
	j.state.Store(waiting)
	j.takes, j.keys, j.debts = append(j.takes[:0], takes...), j.keys[:0], j.debts[:0]
	size := 0
	for i := range takes {
		size += len(takes[i].Key)
	}
	if cap(j.keys) < size {
		j.keys = make([]byte, 0, size)
	}
	if cap(j.leases) < len(takes) {
		j.leases = make([]backend.Lease, len(takes))
	}
	j.leases = j.leases[:len(takes)]
	for i := range j.takes {
		start := len(j.keys)
		j.keys = append(j.keys, takes[i].Key...)
		j.takes[i].Key = j.keys[start:len(j.keys):len(j.keys)]
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

// ask sends a call to the store and waits for its answer at most so long. If it left
// without one, the job is returned with the error, and must be given to settle.
func (s *Store) ask(ctx context.Context, began time.Time, wait time.Duration, takes []backend.Take, dst []backend.Decision) (*job, error) {
	j := s.newJob(ctx, takes)
	j.debts = s.local.collect(j.takes, j.debts)
	if !s.workers.start(j) {
		s.local.putBack(j.debts)
		s.jobs.Put(j)
		return nil, errFull
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C:
		if j.state.CompareAndSwap(waiting, left) {
			s.silent(takes, began)
			return j, errLate
		}
		<-j.done // it came at the same moment
	case <-ctx.Done():
		if j.state.CompareAndSwap(waiting, left) {
			return j, ctx.Err()
		}
		<-j.done
	}
	err := j.err
	if err == nil {
		copy(dst, j.dst)
		for i := range takes {
			if takes[i].Lease != nil {
				*takes[i].Lease = j.leases[i]
			}
		}
	}
	s.jobs.Put(j)
	return nil, err
}

// run is what a worker does for a job.
func (s *Store) run(j *job) {
	ctx, cancel := context.WithTimeout(j.ctx, s.o.Linger)
	defer cancel()
	sent := time.Now()
	if len(j.debts) > 0 {
		if j.err = s.send(ctx, j.debts, make([]backend.Decision, len(j.debts))); j.err != nil {
			s.local.putBack(j.debts)
		}
	}
	if j.err == nil {
		j.err = s.send(ctx, j.takes, j.dst)
	}
	if server := s.o.Server(j.takes[0].Key); !s.o.Told || server == "" && j.err != nil {
		s.Answered(server, time.Since(sent), j.err)
	}
	if j.err == nil {
		for i := range j.takes {
			s.levels.note(&j.takes[i], &j.dst[i])
		}
		s.local.forget(j.takes)
	}
	if j.state.CompareAndSwap(waiting, answered) {
		j.done <- struct{}{}
		return
	}
	s.finish(j)
}

// send asks the store. A panic of it is an error of this call alone: nobody above a worker
// would catch it.
func (s *Store) send(ctx context.Context, takes []backend.Take, dst []backend.Decision) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("taking: panic: %v", p)
			s.log.Error("panic in the store", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	return s.store.Take(ctx, takes, dst)
}

// settle is told by the waiter how a call was answered whose job it has left: dst are the
// decisions of the job's takes. What local buckets let through is owed only once it is
// known that the store did not charge it.
func (s *Store) settle(j *job, denied bool, dst []backend.Decision) {
	j.paid, j.refused = j.paid[:0], j.refused[:0]
	for i := range dst {
		paid := uint64(0)
		if dst[i].Source == backend.LocalShare {
			paid = dst[i].Charged
			s.local.owe(j.takes[i].Key, -float64(paid))
		}
		j.paid = append(j.paid, paid)
		j.refused = append(j.refused, denied && !dst[i].Debt)
	}
	s.finish(j)
}

// finish is called by the worker and by the waiter that left; the second of them knows
// both answers.
func (s *Store) finish(j *job) {
	if j.state.CompareAndSwap(left, settled) {
		return
	}
	gives := j.takes[:0]
	for i := range j.takes {
		t, charged := j.takes[i], j.dst[i].Charged
		if j.err != nil {
			charged = 0 // as far as anybody knows
		}
		switch {
		case charged > 0 && j.refused[i]:
			gives = append(gives, backend.Take{Key: t.Key, Limit: t.Limit, Give: charged})
			continue
		case charged > j.paid[i] && t.Lease != nil && t.Lease.Calls > 1:
			// Of several calls, one was answered here; the others have asked again.
			gives = append(gives, backend.Take{Key: t.Key, Limit: t.Limit, Give: charged - j.paid[i]})
		}
		if j.paid[i] > charged {
			s.local.owe(t.Key, float64(j.paid[i]-charged))
		}
	}
	s.giveBack(j.ctx, gives)
}

// giveBack returns tokens of a denied call, with nobody waiting. The keys must not change
// any more. If that fails they stay taken.
func (s *Store) giveBack(ctx context.Context, gives []backend.Take) {
	if len(gives) == 0 {
		return
	}
	j := &job{ctx: context.WithoutCancel(ctx), takes: gives, dst: make([]backend.Decision, len(gives)), done: make(chan struct{}, 1)}
	j.state.Store(waiting) // its answer goes to a channel that nobody reads
	s.workers.start(j)
}

// workers run jobs. There are as many as there are jobs in flight, and some of those that
// have nothing to do are kept, since their stacks have grown already.
type workers struct {
	run    func(*job)
	most   int
	queue  chan *job // unbuffered: to a worker that has nothing to do
	closed chan struct{}

	mu      sync.Mutex // guards the rest, but for running
	idle    int
	ended   bool
	running sync.WaitGroup
	count   int
}

// idleWorkers is how many workers are kept that have nothing to do.
const idleWorkers = 64

// start gives a job to a worker, and reports false if there are too many.
func (w *workers) start(j *job) bool {
	select {
	case w.queue <- j:
		return true
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == w.most || w.ended {
		return false
	}
	w.count++
	w.running.Go(func() { w.work(j) })
	return true
}

// work runs a job, and others after it.
func (w *workers) work(j *job) {
	defer func() {
		w.mu.Lock()
		w.count--
		w.mu.Unlock()
	}()
	for {
		w.run(j)
		if !w.rest(1) {
			return
		}
		select {
		case j = <-w.queue:
			w.rest(-1)
		case <-w.closed:
			return
		}
	}
}

// rest counts a worker that has nothing to do, or has again, and reports whether there is
// room for one more.
func (w *workers) rest(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > 0 && w.idle == idleWorkers {
		return false
	}
	w.idle += n
	return true
}

func (w *workers) busy() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count - w.idle
}

func (w *workers) close() {
	w.mu.Lock()
	ended := w.ended
	w.ended = true
	w.mu.Unlock()
	if !ended {
		close(w.closed)
	}
	w.running.Wait()
}
