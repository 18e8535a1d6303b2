// Package memstore keeps buckets in the memory of the process: the store of a single
// instance, the reference for the others, and what an instance falls back to when its
// Redis is away.
//
// The arithmetic is that of package backend; here is where the buckets lie. They are
// spread over shards by a hash of their keys. A call locks the shards of all its buckets,
// in their order, so that it is decided and charged in one step.
//
// A bucket that is full again equals one that never was, and is dropped by and by: each
// call looks at a few buckets of the shards it holds. If the store is full nevertheless, a
// new bucket takes the place of the one, of a few, that is worth least: that would be full
// again first, or has least taken from its window. The caller of that bucket starts afresh then, but nobody goes unlimited. A sliding log grows
// with its tokens, so it counts as the number of buckets that would take as much memory.
package memstore

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

var _ backend.Store = (*Store)(nil)

const (
	// maxShards is the number of shards of a store that is not small: one bit each in the
	// set of those that a call locks.
	maxShards = 64
	// smallShard is the fewest buckets that a shard is worth having for.
	smallShard = 64
	// swept is the number of buckets that a call looks at, in each shard it holds, for one
	// to drop; more than one, so that the store shrinks faster than it grows.
	swept = 2
	// sampled is the number of buckets of which the least useful goes if a shard is full.
	sampled = 8
	// bucketBytes is about what a bucket without a log takes.
	bucketBytes = 250
)

// Options are the settings of a Store; their zero values are the defaults.
type Options struct {
	// MaxBuckets bounds the buckets kept at once; 1,000,000 if 0. One takes about 250 bytes
	// and its key. A sliding log, which takes 24 more for each token, or twice that while it
	// grows, counts as one more for each 250 bytes.
	MaxBuckets int
	// Now is the clock; time.Now if nil. It is read once a call, and a wall clock that is
	// set does not matter as long as the times have a monotonic reading.
	Now func() time.Time
}

// Store is a backend.Store in memory, shared by shards. Make one with New.
type Store struct {
	now   func() time.Time
	start time.Time
	seed  maphash.Seed
	// shards has a power of two of elements.
	shards  []shard
	evicted atomic.Uint64
}

// New returns an empty store.
func New(o Options) *Store {
	if o.MaxBuckets <= 0 {
		o.MaxBuckets = 1_000_000
	}
	o.MaxBuckets = min(o.MaxBuckets, math.MaxInt32)
	if o.Now == nil {
		o.Now = time.Now
	}
	shards := 1
	for shards < maxShards && o.MaxBuckets/shards >= 2*smallShard {
		shards *= 2
	}
	s := &Store{
		now: o.Now, start: o.Now(), seed: maphash.MakeSeed(), shards: make([]shard, shards),
	}
	for i := range s.shards {
		s.shards[i].most = max(1, o.MaxBuckets/shards)
		s.shards[i].index = make(map[string]int32)
	}
	return s
}

// micros is the time in microseconds since 1970, by the wall clock of the store's start
// and the monotonic clock since.
func (s *Store) micros() int64 {
	return s.start.UnixMicro() + s.now().Sub(s.start).Microseconds()
}

// Len is the number of buckets kept, those included that wait to be dropped.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n += len(sh.index)
		sh.mu.Unlock()
	}
	return n
}

// Evicted is the number of buckets so far that had to make room though they were not full.
func (s *Store) Evicted() uint64 { return s.evicted.Load() }

// Take implements backend.Store. It never waits for anything but the other calls, and
// fails only for takes that backend.Check refuses.
func (s *Store) Take(_ context.Context, takes []backend.Take, dst []backend.Decision) error {
	if err := backend.Check(takes, dst); err != nil || len(takes) == 0 {
		return err
	}
	var held uint64
	for i := range takes {
		held |= 1 << s.shardOf(takes[i].Key)
	}
	s.lock(held)
	defer s.unlock(held)
	w := &s.shards[bits.TrailingZeros64(held)].work
	for i := range takes {
		w.places = append(w.places, place{shard: &s.shards[s.shardOf(takes[i].Key)]})
	}
	for i := range w.places {
		w.buckets = append(w.buckets, w.places[i].bucketLocked(takes[i].Key))
	}
	now := s.micros()
	backend.Settle(takes, w.buckets, now, dst)
	evicted := 0
	for i := range w.places {
		evicted += w.places[i].keepLocked(takes[i].Key, now)
	}
	for i := range w.places {
		if takes[i].Limit.Algorithm == backend.SlidingLog {
			evicted += w.places[i].weighLocked(takes[i].Key, now)
		}
	}
	if evicted > 0 {
		s.evicted.Add(uint64(evicted))
	}
	for set := held; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].sweepLocked(now)
	}
	clear(w.buckets)
	w.places, w.buckets = w.places[:0], w.buckets[:0]
	return nil
}

func (s *Store) shardOf(key []byte) uint64 {
	return maphash.Bytes(s.seed, key) & uint64(len(s.shards)-1)
}

// lock locks a set of shards in their order, so that two calls never wait for each other.
func (s *Store) lock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
}

func (s *Store) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}
