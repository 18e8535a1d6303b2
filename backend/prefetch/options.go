package prefetch

import (
	"math"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

const (
	// horizon is the time for which an entry wishes to hold tokens.
	horizon = 2 * time.Second
	// life bounds how long tokens may be spent. It is less than backend.LeaseLife by more
	// than the clocks of two machines drift apart in that time.
	life = backend.LeaseLife * 95 / 100
	// leastLife is how long a lease lives at least, beside two round trips.
	leastLife = 20 * time.Millisecond
	// longestPause bounds the scarcity pause, and leastPause is the first of its steps.
	longestPause = 100 * time.Millisecond
	leastPause   = time.Millisecond
	// memory is how long it is believed at most what the store said of a level. Within that
	// time another instance may have given tokens back.
	memory = time.Second
	// part is the part of the free room that one ask gets, see backend.Lease.
	part = 4
	// smallest is the fewest tokens that a lease can have, and worth the fewest that are worth
	// one: to ask for them and to give them back costs more than to ask for each of a few.
	smallest, worth = 2, 8
	// shortest is the least time for which hits make a rate, so that two calls that come at
	// the same time do not look like many.
	shortest = 2 * time.Millisecond
	// patience bounds an ask.
	patience = 250 * time.Millisecond
	// margin is what a store keeps of the time until a deadline, for the answer.
	margin = time.Millisecond
	// longest is the time to full from which on limits are left to the store: times in
	// nanoseconds end at 292 years.
	longest = 100 * 365 * 24 * time.Hour
)

// Options are the settings of a Store; their zero values are the defaults.
type Options struct {
	// Fraction is the part of a bucket's tokens that all instances together may hold ahead,
	// above 0 to 0.3; 0.15 if 0. More means fewer calls to the store and less room for
	// bursts. Limits with a capacity below 8 / Fraction never lease.
	Fraction float64
	// Scarcity is the part of the time to full for which an entry stays away from an empty
	// bucket, at most 100 ms, and the part of a fixed window, at most 1 s; 0.02 to 0.1, 0.05
	// if 0.
	Scarcity float64
	// MaxEntries bounds the keys that are known at once; 200,000 if 0. An entry takes about
	// 300 bytes and its key. Calls on others go to the store as they are.
	MaxEntries int
	// Budget is the longest that one ask takes. A call waits for the ask under way and, if
	// that has an answer, for the next one: nearly twice as long at most, so that a store that
	// is only far away decides. After an ask without an answer it waits no longer than once,
	// and a caller with less time than twice asks the store alone. 0: there is no bound.
	Budget time.Duration
	// MaxWaiting bounds the calls that wait here; 10,000 if 0. Calls beyond it go to the
	// store as they are.
	MaxWaiting int
}

func (o Options) withDefaults() Options {
	if o.Fraction == 0 {
		o.Fraction = 0.15
	}
	if o.Scarcity == 0 {
		o.Scarcity = 0.05
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = 200_000
	}
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = 10_000
	}
	return o
}

// longestWait is the longest that a call waits for two asks.
func (o *Options) longestWait() time.Duration { return max(2*o.Budget-margin, o.Budget+margin) }

// size is a limit, with what follows from it. It does not change.
type size struct {
	limit    backend.Limit
	capacity float64
	// window says that nothing comes back before the window ends, and then all does. Else
	// token is the time in nanoseconds in which one token comes back.
	window bool
	token  float64
	// most is the number of tokens that an instance holds at most; leases says that it is
	// worth it.
	most   float64
	leases bool
	// pause is the longest scarcity pause in nanoseconds, and scarce the tokens that come
	// back in it; both 0 if it is too short to be worth it. A window has no pauses, since
	// there is nothing to wait for but its end.
	pause, scarce float64
	// memory is how long in nanoseconds it is believed what the store said of a level.
	memory int64
}

func (o *Options) size(l backend.Limit) *size {
	z := &size{
		limit: l, capacity: l.Capacity(), window: l.Algorithm == backend.FixedWindow,
		token:  float64(l.Period.Nanoseconds()) / float64(l.Requests),
		memory: int64(memory),
	}
	z.most = o.Fraction * z.capacity / part
	z.leases = z.most >= smallest
	if z.window {
		z.scarce = o.Scarcity * z.capacity
		if z.leases { // what others give back is there for what is left of the window only
			z.memory = min(z.memory, int64(o.Scarcity*float64(l.Period)))
		}
		return z
	}
	if pause := min(o.Scarcity*z.capacity*z.token, float64(longestPause)); pause >= 2*float64(leastPause) {
		z.pause, z.scarce = pause, pause/z.token
	}
	return z
}

// wait is how long until need tokens are there, of which the bucket has level. Its window, if
// it has one, lasts for so many nanoseconds more.
func (z *size) wait(need, level float64, lasts int64) time.Duration {
	need = min(need, z.capacity)
	missing := need - slack(need)/2 - level
	if missing <= 0 {
		return 0
	}
	if z.window {
		return micros(max(lasts, 0))
	}
	wait := time.Duration(min(math.Ceil(missing*z.token/1000), float64(backend.MaxIdle/time.Microsecond)))
	return wait * time.Microsecond
}

// add adds what a lease holds to a decision of the store.
func (z *size) add(d *backend.Decision, tokens int64) {
	if tokens > 0 {
		d.Level = min(d.Level+float64(tokens), z.capacity)
		d.Full = z.wait(z.capacity, d.Level, int64(d.Full))
	}
}

// suits reports whether takes of a limit may be decided here.
func suits(l *backend.Limit) bool {
	return l.Algorithm.Leases() && l.Requests > 0 && l.Burst > 0 && l.Period > 0 &&
		l.Capacity()/float64(l.Requests)*l.Period.Seconds() < longest.Seconds()
}

// slack is what may be missing of n tokens that count as there, as in package backend.
func slack(n float64) float64 { return backend.Epsilon + n/(1<<49) }
