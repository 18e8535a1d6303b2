package memstore

import (
	"math/rand/v2"
	"sync"

	"github.com/sluice-rls/sluice/backend"
)

// shard is a part of the buckets.
type shard struct {
	mu sync.Mutex // guards all below but most

	// index has the places of keys in slots. free are the places of slots that are not
	// used, and hand is where the next sweep goes on.
	index map[string]int32
	slots []slot
	free  []int32
	hand  int
	// work is what a call needs room for that holds this shard and none before it.
	work work

	most int // of buckets
}

// work is the buckets of a call.
type work struct {
	places  []place
	buckets []*backend.Bucket
}

// slot is room for one bucket.
type slot struct {
	used   bool
	key    string
	bucket backend.Bucket
}

// place is where the bucket of a take lies while its shard is locked: in a slot, or here
// as long as it is not worth keeping.
type place struct {
	shard *shard
	slot  int32
	known bool
	fresh backend.Bucket
}

func (p *place) bucketLocked(key []byte) *backend.Bucket {
	if p.slot, p.known = p.shard.index[string(key)]; p.known {
		return &p.shard.slots[p.slot].bucket
	}
	return &p.fresh
}

// keepLocked makes room for a bucket that the call made, and reports whether another one
// had to go for it.
func (p *place) keepLocked(key []byte, now int64) (evicted bool) {
	if p.known || p.fresh.Expires() <= now {
		return false
	}
	sh := p.shard
	if len(sh.index) >= sh.most {
		evicted = sh.evictLocked(now)
	}
	var n int32
	if last := len(sh.free) - 1; last >= 0 {
		n, sh.free = sh.free[last], sh.free[:last]
	} else {
		n = int32(len(sh.slots))
		sh.slots = append(sh.slots, slot{})
	}
	owned := string(key)
	sh.slots[n] = slot{used: true, key: owned, bucket: p.fresh}
	sh.index[owned] = n
	return evicted
}

// sweepLocked looks at a few buckets and drops those that are as if nobody had touched
// them.
func (sh *shard) sweepLocked(now int64) {
	for range min(swept, len(sh.slots)) {
		n := sh.nextLocked()
		if sl := &sh.slots[n]; sl.used && sl.bucket.Expires() <= now {
			sh.dropLocked(n)
		}
	}
}

// evictLocked drops, of a few buckets picked at random, the one that will be full first, and reports
// whether it was not full yet.
func (sh *shard) evictLocked(now int64) bool {
	victim := rand.IntN(len(sh.slots)) // in a full shard every slot is used
	for range sampled - 1 {
		if n := rand.IntN(len(sh.slots)); sh.slots[n].bucket.Expires() < sh.slots[victim].bucket.Expires() {
			victim = n
		}
	}
	early := sh.slots[victim].bucket.Expires() > now
	sh.dropLocked(int32(victim))
	return early
}

// nextLocked moves the hand on by one slot, round and round.
func (sh *shard) nextLocked() int32 {
	n := sh.hand % len(sh.slots)
	sh.hand = n + 1
	return int32(n)
}

func (sh *shard) dropLocked(n int32) {
	delete(sh.index, sh.slots[n].key)
	sh.slots[n] = slot{}
	sh.free = append(sh.free, n)
}
