package failover

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// unit is the limit of a take that no bucket has.
var unit = backend.Limit{Requests: 1, Burst: 1, Period: time.Second}

// local holds the buckets that stand in for the store's. It is asked only while the store
// does not answer, and for what is owed afterwards, so one lock is enough.
type local struct {
	most    int
	start   time.Time
	levels  *levels
	size    atomic.Int64 // len(buckets), for those who only ask whether there are any
	evicted atomic.Uint64
	rank    atomic.Int64 // see SetRank

	mu      sync.Mutex // guards the rest
	buckets map[string]*bucket
	weight  int // of buckets
	takes   []backend.Take
	states  []*backend.Bucket
	found   []*bucket // nil: the take has no bucket
}

// bucketBytes is about what a bucket without a log takes.
const bucketBytes = 300

// bucket is one of them. owed is what it let through and the store does not know of, and
// weight how many buckets without a log take as much memory.
type bucket struct {
	state  backend.Bucket
	share  backend.Limit
	owed   float64
	weight int
}

func newLocal(most int, l *levels) *local {
	n := &local{most: most, start: time.Now(), levels: l, buckets: make(map[string]*bucket)}
	n.rank.Store(-1)
	return n
}

// SetRank says which of the instances that share the limits this one is, counted from 0; no
// two may have the same. The first ones get the tokens by which a burst does not divide, one
// each, so that all the shares are together the whole burst. Below 0, as at first, it is not
// known, and the share is rounded down.
func (s *Store) SetRank(rank int) { s.local.rank.Store(int64(rank)) }

// micros is the time in microseconds since 1970, which a wall clock that is set does not
// move.
func (l *local) micros() int64 {
	return l.start.UnixMicro() + time.Since(l.start).Microseconds()
}

func (l *local) len() int { return int(l.size.Load()) }

// decide decides a call without the store: all of its takes in one step, as a store does.
// def is for the takes with backend.FailDefault, n the number of instances.
func (l *local) decide(takes []backend.Take, dst []backend.Decision, def backend.OnFailure, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.micros()
	l.takes, l.states, l.found = l.takes[:0], l.states[:0], l.found[:0]
	for i := range takes {
		t := takes[i]
		t.Lease = nil // that is an account with the store
		if t.OnFailure == backend.FailDefault {
			t.OnFailure = def
		}
		var b *bucket
		switch t.OnFailure {
		case backend.FailAllow: // a refund is always within the limit
			t.Limit, t.Hits, t.Give, t.Overflow = unit, 0, 1, backend.Reject
		case backend.FailDeny: // and more than the capacity never
			t.Limit, t.Hits, t.Give, t.Overflow = unit, 2, 0, backend.Reject
		default:
			t.Limit = share(t.Limit, n, int(l.rank.Load()))
			b = l.bucketLocked(&takes[i], t.Limit, now, n)
		}
		l.takes, l.found = append(l.takes, t), append(l.found, b)
		if b != nil {
			l.states = append(l.states, &b.state)
		} else {
			l.states = append(l.states, new(backend.Bucket))
		}
	}
	backend.Settle(l.takes, l.states, now, dst)
	for i, b := range l.found {
		switch {
		case b != nil:
			dst[i].Source = backend.LocalShare
			b.owed = max(b.owed+float64(dst[i].Charged)-given(&takes[i], &dst[i]), 0)
			l.keepLocked(takes[i].Key, b, now)
		case l.takes[i].OnFailure == backend.FailAllow:
			dst[i] = backend.Decision{OK: true, Source: backend.DegradedAllow}
		default:
			dst[i] = backend.Decision{Wait: time.Second, Full: time.Second, Source: backend.DegradedDeny}
		}
	}
	clear(l.states)
	clear(l.found)
	clear(l.takes)
}

// given is what a take put back, or nothing worth to know of.
func given(t *backend.Take, d *backend.Decision) float64 {
	if d.OK || d.Debt {
		return float64(t.Give)
	}
	return 0
}

// share is the part of a limit that one of n instances has: of its rate, and of its
// capacity in whole tokens but one at least.
func share(l backend.Limit, n, rank int) backend.Limit {
	if n <= 1 {
		return l
	}
	part := func(whole uint64) uint64 {
		tokens, rest := whole/uint64(n), whole%uint64(n)
		if rank >= 0 && uint64(rank) < rest {
			tokens++
		}
		return max(tokens, 1)
	}
	switch l.Algorithm {
	case backend.TokenBucket, backend.LeakyBucket:
		l.Burst = part(l.Burst)
		if l.Period > backend.MaxIdle/time.Duration(n) {
			l.Requests = part(l.Requests)
		} else {
			l.Period *= time.Duration(n) // keeps the fractions of the rate
		}
	default:
		l.Requests, l.Burst = part(l.Requests), part(l.Burst)
	}
	return l
}

// bucketLocked gives the bucket of a take, which begins with its part of what the store
// told last.
func (l *local) bucketLocked(t *backend.Take, part backend.Limit, now int64, n int) *bucket {
	if b := l.buckets[string(t.Key)]; b != nil {
		b.share = part
		return b
	}
	b := &bucket{share: part, weight: 1}
	level, known := l.levels.get(t, time.Now())
	if !known {
		return b
	}
	missing := math.Ceil(part.Capacity() - level/float64(max(n, 1)))
	if missing >= 1 {
		first := []backend.Take{{Limit: part, Hits: uint64(missing), Mode: backend.Shadow, Overflow: backend.Debt}}
		backend.Settle(first, []*backend.Bucket{&b.state}, now, make([]backend.Decision, 1))
	}
	return b
}

// keepLocked keeps a bucket unless it is as if nobody had touched it: such a one owes
// nothing.
func (l *local) keepLocked(key []byte, b *bucket, now int64) {
	weight := 1 + b.state.Extra()/bucketBytes
	if l.buckets[string(key)] == b {
		l.weight += weight - b.weight
	} else {
		if b.state.Expires() <= now {
			return
		}
		l.buckets[string(key)] = b
		l.weight += weight
	}
	b.weight = weight
	for l.weight > l.most && len(l.buckets) > 1 {
		l.evictLocked(b, now)
	}
	l.size.Store(int64(len(l.buckets)))
}

// sampled is the number of buckets of which the one that is worth least goes.
const sampled = 8

// evictLocked drops any bucket but keep. It relies on a map's iteration beginning anywhere.
func (l *local) evictLocked(keep *bucket, now int64) {
	victim, least, n := "", math.Inf(1), 0
	for key, b := range l.buckets {
		if worth := b.state.Worth(now); b != keep && worth < least {
			victim, least = key, worth
		}
		if n++; n > sampled {
			break
		}
	}
	l.dropLocked(victim)
	l.evicted.Add(1)
}

// dropLocked lets a bucket go that is there.
func (l *local) dropLocked(key string) {
	l.weight -= l.buckets[key].weight
	delete(l.buckets, key)
}

// sweepSome is the number of buckets that sweep looks at before it lets others in.
const sweepSome = 500

// sweep forgets the buckets that are full again.
func (l *local) sweep() {
	if l.len() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, n := l.micros(), 0
	for key, b := range l.buckets {
		if b.state.Expires() <= now {
			l.dropLocked(key)
		}
		if n++; n == sweepSome {
			break // the next sweep begins elsewhere
		}
	}
	l.size.Store(int64(len(l.buckets)))
}

// collect adds to debts what the local buckets of takes owe to the store. What could not be
// charged must be put back.
//
// A bucket owes what it let through, but no more than it misses: what it has got back
// since, the store's bucket has as well.
func (l *local) collect(takes, debts []backend.Take) []backend.Take {
	if l.len() == 0 {
		return debts
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.micros()
	for i := range takes {
		b := l.buckets[string(takes[i].Key)]
		if b == nil {
			continue
		}
		var look [1]backend.Decision
		backend.Settle([]backend.Take{{Limit: b.share}}, []*backend.Bucket{&b.state}, now, look[:])
		b.owed = min(b.owed, b.share.Capacity()-look[0].Level)
		hits := math.Round(b.owed)
		if hits < 1 {
			continue
		}
		b.owed -= hits
		debts = append(debts, backend.Take{
			Key: takes[i].Key, Limit: takes[i].Limit, Hits: uint64(hits), Mode: backend.Shadow, Overflow: backend.Debt,
		})
	}
	return debts
}

// forget lets the buckets of takes go that owe nothing: the store has decided these.
func (l *local) forget(takes []backend.Take) {
	if l.len() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range takes {
		if b := l.buckets[string(takes[i].Key)]; b != nil && math.Round(b.owed) < 1 {
			l.dropLocked(string(takes[i].Key))
		}
	}
	l.size.Store(int64(len(l.buckets)))
}

// putBack undoes collect, for one of n instances.
func (l *local) putBack(debts []backend.Take, n int) {
	for i := range debts {
		l.lend(&debts[i], float64(debts[i].Hits), n)
	}
}

// owe changes what the bucket of a key owes, if it is still there.
func (l *local) owe(key []byte, tokens float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.buckets[string(key)]; b != nil {
		b.owed = max(b.owed+tokens, 0)
	}
}

// lend is owe for what was let through after all. A bucket that is there no more, since it
// owed nothing as far as anybody knew, is made anew as it would be.
func (l *local) lend(t *backend.Take, tokens float64, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[string(t.Key)]
	if b == nil {
		now, part := l.micros(), share(t.Limit, n, int(l.rank.Load()))
		b = l.bucketLocked(t, part, now, n)
		take := []backend.Take{{Limit: part, Hits: uint64(math.Ceil(tokens)), Mode: backend.Shadow, Overflow: backend.Debt}}
		backend.Settle(take, []*backend.Bucket{&b.state}, now, make([]backend.Decision, 1))
		l.keepLocked(t.Key, b, now)
	}
	b.owed += tokens
}
