package backend

import (
	"math"
	"slices"
	"time"
)

// Epsilon is the part of a token that counts as nothing, so that the rounding of sums
// of fractions never denies a call that arrives exactly when it was told to.
const Epsilon = 1e-9

// rounding is the part of a number that its float64 may be off by after some steps of
// arithmetic: eight units in the last place. It matters from some thousands of tokens.
const rounding = 1.0 / (1 << 49)

// MaxIdle is the longest life of a bucket that nobody touches, and the longest Wait: a
// bucket that would need longer to fill is full after ten years of 365 days.
const MaxIdle = 10 * 365 * 24 * time.Hour

// maxAhead is how far the store's clock may fall behind that of a bucket, in
// microseconds, and the bucket waits for it. A clock that is further back was set, and
// waiting for it would deny everybody for as long.
const maxAhead = 10e6

// slack is what may be missing of n tokens that count as there.
func slack(n float64) float64 { return Epsilon + float64(math.Abs(n)*rounding) }

// period is the limit's period in microseconds.
func period(l *Limit) float64 { return float64(l.Period.Microseconds()) }

// idleMicros is MaxIdle in microseconds.
const idleMicros = float64(MaxIdle / time.Microsecond)

// duration is a number of microseconds, zero to MaxIdle.
func duration(micros float64) time.Duration {
	return time.Duration(max(0, min(micros, idleMicros))) * time.Microsecond
}

// later is the time of a bucket that was at some time, once a call came at now. It never
// runs back: two clocks that disagree, or a call that comes late, must not fill the same
// stretch of time twice. Only of a clock that was set back it begins anew.
func later(at, now float64) float64 {
	if now > at || now < at-maxAhead {
		return now
	}
	return at
}

// Capacity is the number of tokens that a full bucket has: Burst, or Requests where the
// algorithm counts in windows.
func (l *Limit) Capacity() float64 {
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		return float64(l.Burst)
	default:
		return float64(l.Requests)
	}
}

// meter is what an algorithm makes of its part of a Bucket. Its state is all in float64,
// as Lua has it: microseconds since 1970 and whole tokens are exact below 2^53. The scripts
// of redisstore do the same operations in the same order; a product that is added to
// something stands in float64(), so that no processor fuses the two.
type meter interface {
	// open brings the state to now and to the limit, and reports whether that must be kept
	// even if nothing is taken: its clock was set back, or the capacity has changed. The
	// zero state is one that nobody has touched. All other methods are of an open state.
	open(l *Limit, now float64) (keep bool)
	// left is the number of tokens, negative while a debt is owed.
	left(l *Limit) float64
	// take takes n tokens, down to minus the capacity.
	take(l *Limit, n float64)
	// give puts n tokens back, up to full.
	give(l *Limit, n float64)
	// wait is the time in microseconds after now until need tokens are there, zero if they
	// are. need is at most the capacity.
	wait(l *Limit, now, need float64) float64
	// idle is the time in microseconds after now until the state, left alone, is as if
	// nobody had touched it.
	idle(l *Limit, now float64) float64
}

// leaser is the meter of an algorithm that leases.
type leaser interface {
	meter
	// openFor is open for a take with a lease, which may be nil: the instance's account is
	// settled, and what it gives back is there after.
	openFor(lease *Lease, l *Limit, now float64) (keep bool)
	// lease hands out tokens after the charge, if the take got all that it asked for, and
	// writes the answer.
	lease(t *Take, paid bool)
}

// Bucket is the state of one bucket. The zero value is a bucket that nobody has touched,
// which is full. A Bucket must not be copied once it was settled, and is not safe for
// concurrent use.
type Bucket struct {
	// algorithm says which one of the states below is in use.
	algorithm Algorithm
	tokens    tokens
	windows   *windows
	log       *slidingLog
	// looked is the time in microseconds at which the mark of a look ends.
	looked float64
	// expires is the time in microseconds from which on the bucket equals the zero value;
	// zero only in the zero value.
	expires float64
	// used is the part of a window's limit that was taken, 0 to 1; else 1. See Worth.
	used float64
}

// windows is the state of a bucket that counts in windows. Most buckets do not, and are
// smaller without it.
type windows struct {
	fixed   fixedWindow
	sliding slidingWindow
}

// Expires is the time in microseconds of the store's clock at which the bucket, left
// alone, equals one that nobody has touched and need not be kept any longer; zero if it
// is one.
func (b *Bucket) Expires() int64 { return int64(b.expires) }

// open brings the bucket to now, and returns its meter and what that said. A bucket whose
// time is over starts afresh, and so does one of another algorithm: callers give that
// another key.
func (b *Bucket) open(t *Take, now float64) (m meter, keep bool) {
	if b.expires <= now || b.algorithm != t.Limit.Algorithm {
		*b = Bucket{algorithm: t.Limit.Algorithm}
	}
	m = b.meter()
	if t.Lease != nil {
		return m, m.(leaser).openFor(t.Lease, &t.Limit, now) //nolint:errcheck // see Check
	}
	return m, m.open(&t.Limit, now)
}

// Clone returns a copy of the bucket that shares nothing with it.
func (b *Bucket) Clone() *Bucket {
	c := *b
	if b.windows != nil {
		c.windows = new(*b.windows)
	}
	if b.log != nil {
		c.log = new(*b.log)
		c.log.entries = slices.Clone(b.log.entries)
	}
	return &c
}

// snapshot is a bucket as it was, with its windows. A log is not in it, since opening one
// changes nothing that is true of it.
type snapshot struct {
	bucket  Bucket
	windows windows
}

func (b *Bucket) snapshot() (s snapshot) {
	s.bucket = *b
	if b.windows != nil {
		s.windows = *b.windows
	}
	return s
}

func (b *Bucket) restore(s *snapshot) {
	*b = s.bucket
	if b.windows != nil {
		*b.windows = s.windows
	}
}

// meter is the one place that knows all algorithms, with the table of take.lua.
func (b *Bucket) meter() meter {
	switch b.algorithm {
	case FixedWindow, SlidingWindow:
		if b.windows == nil {
			b.windows = new(windows)
		}
		if b.algorithm == FixedWindow {
			return &b.windows.fixed
		}
		return &b.windows.sliding
	case SlidingLog:
		if b.log == nil {
			b.log = new(slidingLog)
		}
		return b.log
	default:
		return &b.tokens
	}
}

// keep sets the time at which the bucket is as if nobody had touched it.
func (b *Bucket) keep(m meter, l *Limit, now float64) {
	b.expires = max(now+min(m.idle(l, now), idleMicros), min(b.looked, now+idleMicros))
	b.used = used(m, l)
}
