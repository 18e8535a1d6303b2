package backend

import (
	"math"
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

// Bucket is the state of one bucket. The zero value is a bucket that nobody has touched,
// which is full. A Bucket may be copied; it is not safe for concurrent use.
type Bucket struct {
	tokens tokens
	// looked is the time in microseconds at which the mark of a look ends.
	looked float64
	// expires is the time in microseconds from which on the bucket equals the zero value;
	// zero only in the zero value.
	expires float64
}

// Expires is the time in microseconds of the store's clock at which the bucket, left
// alone, equals one that nobody has touched and need not be kept any longer; zero if it
// is one.
func (b *Bucket) Expires() int64 { return int64(b.expires) }

// open brings the bucket to now: one whose time is over starts afresh.
func (b *Bucket) open(l *Limit, now float64) {
	if b.expires <= now {
		*b = Bucket{}
	}
	b.tokens.open(l, now)
}

// keep sets the time at which the bucket is as if nobody had touched it.
func (b *Bucket) keep(l *Limit, now float64) {
	b.expires = max(now+min(b.tokens.idle(l, now), idleMicros), min(b.looked, now+idleMicros))
}
