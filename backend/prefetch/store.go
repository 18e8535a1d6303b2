package prefetch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

var _ backend.Starter = (*Store)(nil)

// Store is a backend.Store over another one, whose buckets it leases from. Make one with New
// and run it with Run. The entries of keys are read without a lock and each is changed under
// its own.
type Store struct {
	store   backend.Starter
	options Options
	start   time.Time
	// clock is that of a test, in nanoseconds above zero; nil: the process' monotonic one.
	clock func() int64
	table *table
	seen  seen
	// sizes has a *size for each backend.Limit, as long as there are few.
	sizes   sync.Map
	sizings atomic.Int64
	// waiting is the number of calls that wait for an ask.
	waiting atomic.Int64
	// trip is the usual time of a round trip, in nanoseconds.
	trip atomic.Int64

	// leases are the entries that hold or owe tokens.
	leases struct {
		walk sync.Mutex // over a walk of the list, during which it is shorter
		mu   sync.Mutex // over list
		list []*entry
	}
	flights flights
	lones   sync.Pool // of *lone

	counters
}

// New returns a store over another, which must keep to backend.Lease. Run must be called for
// leases to go back.
func New(store backend.Store, o Options) *Store {
	o = o.withDefaults()
	s := &Store{store: backend.Starting(store), options: o, start: time.Now(), table: newTable(o.MaxEntries)}
	s.trip.Store(int64(time.Millisecond))
	s.lones.New = func() any { return new(lone) }
	return s
}

// now is the time since the start in nanoseconds, by the monotonic clock; never zero.
func (s *Store) now() int64 {
	if s.clock != nil {
		return s.clock()
	}
	return int64(time.Since(s.start)) + 1
}

// Take implements backend.Store. A decision of the lease is made without waiting; its Level
// is what the store said last with what came back since, and what is left of the lease. An
// error is the other store's, or says that the caller left.
func (s *Store) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	if ok, err := s.TakeNow(takes, dst); ok {
		return err
	}
	return backend.Await(ctx, s, takes, dst)
}

// Start implements backend.Starter.
func (s *Store) Start(deadline time.Time, takes []backend.Take, dst []backend.Decision, then backend.Continuation) {
	r := request{deadline, takes, dst, then}
	if len(takes) != len(dst) || s.flights.ended.Load() {
		s.pass(r)
		return
	}
	if len(takes) != 1 {
		s.startSeveral(r)
		return
	}
	t := &takes[0]
	if t.NoLease || t.Lease != nil || !suits(&t.Limit) {
		s.pass(r)
		return
	}
	e := s.meet(t)
	switch {
	case e == nil:
		s.pass(r)
	case plain(t):
		s.wait(e, r)
	default:
		s.forward(r, []*entry{e})
	}
}

// request is a call, or the rest of one, that memory could not decide.
type request struct {
	deadline time.Time
	takes    []backend.Take
	dst      []backend.Decision
	then     backend.Continuation
}

// pass has the store decide a call as it is.
func (s *Store) pass(r request) { s.store.Start(r.deadline, r.takes, r.dst, r.then) }

// immediate is a store that decides some calls without waiting.
type immediate interface {
	TakeNow(takes []backend.Take, dst []backend.Decision) (bool, error)
}

// TakeNow is Take for a call that memory decides, or that the other store decides by a
// method of this name. It never waits. If it says false, nothing was decided or charged.
func (s *Store) TakeNow(takes []backend.Take, dst []backend.Decision) (bool, error) {
	if len(takes) == len(dst) && !s.flights.ended.Load() && s.takeNow(takes, dst) {
		return true, nil
	}
	if now, ok := s.store.(immediate); ok {
		return now.TakeNow(takes, dst)
	}
	return false, nil
}

func (s *Store) takeNow(takes []backend.Take, dst []backend.Decision) bool {
	if len(takes) != 1 {
		return s.takeSeveralNow(takes, dst)
	}
	t := &takes[0]
	if t.NoLease || t.Lease != nil || !plain(t) || !suits(&t.Limit) {
		return false
	}
	e := s.known(t)
	if e == nil {
		return false
	}
	z := e.size.Load()
	return z.limit == t.Limit && s.take(e, z, t, &dst[0]) != unknown
}

// plain reports whether the take is a charge that is rejected if it cannot be paid.
func plain(t *backend.Take) bool {
	return t.Hits > 0 && t.Give == 0 && t.Overflow == backend.Reject
}

// meet gives the entry of a take's key, which is made once the key is charged again soon; nil
// if there is none.
func (s *Store) meet(t *backend.Take) *entry {
	e, hash := s.table.find(t.Key)
	if e != nil || !plain(t) || !s.seen.again(hash, s.now()) {
		return e
	}
	return s.table.add(t.Key, hash, s.sizeOf(&t.Limit))
}

// known gives the entry of a take's key; nil if there is none.
func (s *Store) known(t *backend.Take) *entry {
	e, _ := s.table.find(t.Key)
	return e
}

// find is meet, or known.
func (s *Store) find(t *backend.Take, meet bool) *entry {
	if meet {
		return s.meet(t)
	}
	return s.known(t)
}

// sizeOf gives the size of a limit. Limits that come with requests could be many, so only
// some thousands are kept.
func (s *Store) sizeOf(l *backend.Limit) *size {
	if z, ok := s.sizes.Load(*l); ok {
		return z.(*size) //nolint:errcheck // nothing else is put there
	}
	z := s.options.size(*l)
	if s.sizings.Add(1) < 4096 {
		s.sizes.Store(*l, z)
	}
	return z
}

// fitLocked sees to it that the entry has the take's limit. Under another one, what it holds
// goes back by the next ask, and what the store said is forgotten.
func (s *Store) fitLocked(e *entry, l *backend.Limit) *size {
	z := e.size.Load()
	if z.limit == *l {
		return z
	}
	z = s.sizeOf(l)
	e.size.Store(z)
	s.oweLocked(e, e.tokens.Swap(0), e.window.Load())
	e.asked += e.held
	e.held, e.scarce = 0, 0
	e.expires.Store(0)
	e.forget()
	return z
}

// wait decides a plain charge that memory could not: by the store alone while the key is
// cold, else with the next ask.
func (s *Store) wait(e *entry, r request) {
	t := &r.takes[0]
	e.mu.Lock()
	z := s.fitLocked(e, &t.Limit)
	e.asked += int64(min(t.Hits, backend.MaxHits))
	if e.dropped || s.hasty(r) || s.waiting.Load() >= int64(s.options.MaxWaiting) || s.flights.ended.Load() || (!e.busy.Load() && s.coldLocked(e, z)) {
		e.mu.Unlock()
		s.alone(e, r)
		return
	}
	w := s.waiter(r)
	if v := s.decideLocked(e, z, w); v != unknown { // what came meanwhile
		e.mu.Unlock()
		if v == over {
			s.wake(e)
		}
		w.end()
		return
	}
	e.waiters = append(e.waiters, w)
	mine := e.busy.CompareAndSwap(false, true)
	e.mu.Unlock()
	s.waits.Add(1)
	s.waiting.Add(1)
	if mine {
		s.fly(e, false)
	}
}

// hasty reports whether a caller has less time than others may have to wait: it would cut
// short the ask that they share.
func (s *Store) hasty(r request) bool {
	return s.options.Budget > 0 && !r.deadline.IsZero() && time.Until(r.deadline) < s.options.longestWait()
}

// waiter makes a request wait for an ask.
func (s *Store) waiter(r request) *waiter {
	w := &waiter{request: r}
	if s.options.Budget > 0 {
		w.came = time.Now()
		w.deadline = w.came.Add(s.options.longestWait())
	}
	return w
}

// coldLocked reports whether the store should decide a take by itself: there is no lease,
// and none worth asking for.
func (s *Store) coldLocked(e *entry, z *size) bool {
	if !z.leases {
		return true
	}
	e.countLocked(s.now())
	return !e.hotLocked(z) && e.tokens.Load() == 0 && e.counted == 0 && e.owed == 0
}

// alone has a take decided by the store, and keeps what that says.
func (s *Store) alone(e *entry, r request) {
	l, _ := s.lones.Get().(*lone)
	*l = lone{s: s, e: e, request: r, sent: s.now()}
	s.store.Start(r.deadline, r.takes, r.dst, l)
}

// lone is a take that the store decides alone.
type lone struct {
	request

	s    *Store
	e    *entry
	sent int64
}

// Done implements backend.Continuation.
func (l *lone) Done(err error) backend.Flusher {
	s, e, then := l.s, l.e, l.then
	z := e.size.Load()
	if d := &l.dst[0]; err == nil && d.Source == backend.Bucketed && z.limit == l.takes[0].Limit {
		e.hear(z, d, l.sent, s.now())
		z.add(d, e.tokens.Load())
	}
	*l = lone{}
	s.lones.Put(l)
	return then.Done(err)
}
