package failover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

var _ backend.Starter = (*Store)(nil)

// margin is the least part of the caller's time that is kept for the answer; a tenth if
// that is more.
const margin = time.Millisecond

// Options are the settings of a Store; their zero values are the defaults.
type Options struct {
	// Budget is the longest that a take may wait; 5 ms if 0.
	Budget time.Duration
	// Slow is the time from which on an answer counts against its server; the budget if 0.
	Slow time.Duration
	// Linger bounds a command whose waiter has left; 250 ms if 0.
	Linger time.Duration
	// MaxInFlight bounds the commands in flight, those without a waiter included; 1,000 if
	// 0. A take beyond it fails at once.
	MaxInFlight int
	// MaxBuckets bounds the local buckets; 100,000 if 0. One takes about 300 bytes. Where
	// there is no room, the one that is worth least goes, see backend.Bucket.Worth.
	MaxBuckets int

	// Server names the server that has a key, as Probe and Answered know it. Nil: there is
	// one server, whose name is empty.
	Server func(key []byte) string
	// Probe asks a server whether it would decide takes. Nil: an open breaker never closes.
	Probe func(ctx context.Context, server string) error
	// ProbeEvery is the mean time between two probes of a server; 100 ms if 0.
	ProbeEvery time.Duration
	// Told says that the store calls Answered for each command, unless it does not know whom
	// to ask; else it is taken that each take is one, of the server of its first key.
	Told bool

	// OnFailure decides the takes with backend.FailDefault; backend.FailLocal if zero.
	// SetOnFailure changes it.
	OnFailure backend.OnFailure
	// Refuse makes a take that the store does not decide an error, ErrUnavailable, in place
	// of a decision by OnFailure.
	Refuse bool
	// Instances is the number of instances that share a limit; one if nil or below 1.
	Instances func() int

	// Took is told how long each ask of the store took, answered or not. Nil: nobody is.
	Took func(time.Duration)
	// Observe is told of each take that the store did not decide in time: what was in the
	// way, and how long it took to find out. The kind is what the error's method Kind says,
	// "timeout" or "canceled" for those of a context, "full" beyond MaxInFlight, "breaker"
	// while that is open, else "other". Nil: nobody is told.
	Observe func(kind string, took time.Duration)
	// Logger is told of breakers; nil discards it.
	Logger *slog.Logger
}

// ErrUnavailable is what Take returns with Options.Refuse if the store did not decide.
var ErrUnavailable = errors.New("taking: the store did not decide")

// Store is a backend.Store over another. Make one with New, run it with Run, and Close it.
type Store struct {
	store     backend.Starter
	ordered   bool // what the store promises of the order of takes
	o         Options
	log       *slog.Logger
	onFailure atomic.Uint32

	servers  servers
	jobs     sync.Pool      // of *job
	flying   atomic.Int64   // jobs that the store has
	running  sync.WaitGroup // them, and those who have left and not decided yet
	patience patience
	levels   *levels
	local    *local
}

// New returns a store over another.
func New(store backend.Store, o Options) *Store {
	o = o.withDefaults()
	s := &Store{store: backend.Starting(store), o: o, log: o.Logger, levels: newLevels()}
	_, s.ordered = store.(backend.Starter)
	s.local = newLocal(o.MaxBuckets, s.levels)
	s.jobs.New = func() any { return &job{s: s} }
	s.patience.leave, s.patience.running = s.leave, &s.running
	s.SetOnFailure(o.OnFailure)
	return s
}

func (o Options) withDefaults() Options {
	if o.Budget == 0 {
		o.Budget = 5 * time.Millisecond
	}
	if o.Slow == 0 {
		o.Slow = o.Budget
	}
	if o.Linger == 0 {
		o.Linger = 250 * time.Millisecond
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 1000
	}
	if o.MaxBuckets == 0 {
		o.MaxBuckets = 100_000
	}
	if o.Server == nil {
		o.Server = func([]byte) string { return "" }
	}
	if o.ProbeEvery == 0 {
		o.ProbeEvery = 100 * time.Millisecond
	}
	if o.Instances == nil {
		o.Instances = func() int { return 1 }
	}
	if o.Took == nil {
		o.Took = func(time.Duration) {}
	}
	if o.Observe == nil {
		o.Observe = func(string, time.Duration) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// SetOnFailure changes what decides the takes with backend.FailDefault; zero is
// backend.FailLocal.
func (s *Store) SetOnFailure(f backend.OnFailure) {
	if f == backend.FailDefault {
		f = backend.FailLocal
	}
	s.onFailure.Store(uint32(f))
}

// OnFailure is what decides the takes with backend.FailDefault.
func (s *Store) OnFailure() backend.OnFailure { return backend.OnFailure(s.onFailure.Load()) }

// InFlight is the number of commands in flight, those without a waiter included.
func (s *Store) InFlight() int { return int(s.flying.Load()) }

// LocalBuckets is the number of buckets of this process that stand in for the store's.
func (s *Store) LocalBuckets() int { return s.local.len() }

// Evicted is the number of local buckets so far that had to make room.
func (s *Store) Evicted() uint64 { return s.local.evicted.Load() }

// Close waits for the commands in flight. No take may begin any more.
func (s *Store) Close() {
	s.running.Wait()
	s.patience.close()
}

// TakeNow is Take for a call that need not wait, since all its servers are away. It
// reports false for any other, of which nothing was decided then.
func (s *Store) TakeNow(takes []backend.Take, dst []backend.Decision) (bool, error) {
	if err := backend.Check(takes, dst); err != nil {
		return true, err
	}
	if len(takes) == 0 || s.away(takes) < len(takes) {
		return false, nil
	}
	return true, s.stand(takes, dst, nil, errBreaker, time.Now())
}

// stand decides what the store has not, by OnFailure. j is the job whose waiter has left,
// if there is one, and then no longer the caller's.
func (s *Store) stand(takes []backend.Take, dst []backend.Decision, j *job, err error, began time.Time) error {
	s.o.Observe(kind(err), time.Since(began))
	refuse := s.o.Refuse
	if !refuse {
		s.local.decide(takes, dst, s.OnFailure(), s.o.Instances())
	}
	if j != nil {
		s.settle(j, refuse || backend.Denied(takes, dst), dst)
	}
	if refuse {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// wait is how long a call may wait.
func (s *Store) wait(deadline, began time.Time) time.Duration {
	if deadline.IsZero() {
		return s.o.Budget
	}
	left := deadline.Sub(began)
	return min(s.o.Budget, left-max(margin, left/10))
}

// failure is an error of this package's own with the kind that metrics know it by.
type failure struct{ kind, text string }

func (f *failure) Error() string { return f.text }

// Kind names the failure for metrics.
func (f *failure) Kind() string { return f.kind }

var (
	errBreaker = &failure{"breaker", "the breaker is open"}
	errNoTime  = &failure{"timeout", "the caller has no time left"}
	errLate    = &failure{"timeout", "no answer within the budget"}
	errFull    = &failure{"full", "too many commands are in flight"}
)

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
