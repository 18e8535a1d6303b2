package memstore

import (
	"math/rand/v2"
	"sync"

	"github.com/sluice-rls/sluice/backend"
)

// shard is a part of the buckets.
type shard struct {
	mu sync.Mutex // guards all below but most

	// index has the places of keys in slots, and hand is where the next sweep goes on.
	index map[string]int32
	slots []slot
	hand  int
	// weight is the sum of the weights of slots.
	weight int
	// work is what a call needs room for that holds this shard and none before it.
	work work

	most int // of weight, unless a single bucket has more
}

// work is the buckets of a call.
type work struct {
	places  []place
	buckets []*backend.Bucket
}

// slot is one bucket.
type slot struct {
	key    string
	bucket backend.Bucket
	weight int
}

// weigh is how many buckets without a log take as much memory as this one.
func (sl *slot) weigh() int { return 1 + sl.bucket.Extra()/bucketBytes }

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

// keepLocked makes room for a bucket that the call made, and returns how many others had
// to go for it though they were not full.
func (p *place) keepLocked(key []byte, now int64) (evicted int) {
	if p.known || p.fresh.Expires() <= now {
		return 0
	}
	sh := p.shard
	for sh.weight >= sh.most && len(sh.slots) > 0 {
		evicted += sh.evictLocked(now, -1)
	}
	owned := string(key)
	sh.index[owned] = int32(len(sh.slots))
	sh.slots = append(sh.slots, slot{key: owned, bucket: p.fresh, weight: 1})
	sh.weight++
	return evicted
}

// weighLocked makes room for what the call added to a bucket with a log, if it is kept, and
// returns how many others had to go for it though they were not full.
func (p *place) weighLocked(key []byte, now int64) (evicted int) {
	sh := p.shard
	n, ok := sh.index[string(key)]
	if !ok {
		return 0
	}
	weight := sh.slots[n].weigh()
	sh.weight += weight - sh.slots[n].weight
	sh.slots[n].weight = weight
	for sh.weight > sh.most && len(sh.slots) > 1 {
		evicted += sh.evictLocked(now, sh.index[string(key)])
	}
	return evicted
}

// sweepLocked looks at a few buckets and drops those that are as if nobody had touched
// them.
func (sh *shard) sweepLocked(now int64) {
	for range min(swept, len(sh.slots)) {
		if sh.hand >= len(sh.slots) {
			sh.hand = 0
		}
		if sh.slots[sh.hand].bucket.Expires() <= now {
			sh.dropLocked(sh.hand) // another one is at its place then
		} else {
			sh.hand++
		}
	}
}

// evictLocked drops, of a few buckets picked at random, the one that is worth least, but not
// the one at keep; -1 is none. It returns 1 if that was not full yet, else 0.
func (sh *shard) evictLocked(now int64, keep int32) int {
	pick := func() int {
		n := rand.IntN(len(sh.slots))
		if n == int(keep) { // there is another one
			n = (n + 1) % len(sh.slots)
		}
		return n
	}
	victim := pick()
	least := sh.slots[victim].bucket.Worth(now)
	for range sampled - 1 {
		n := pick()
		if worth := sh.slots[n].bucket.Worth(now); worth < least {
			victim, least = n, worth
		}
	}
	early := 0
	if sh.slots[victim].bucket.Expires() > now {
		early = 1
	}
	sh.dropLocked(victim)
	return early
}

// dropLocked puts the last bucket in the place of one that goes.
func (sh *shard) dropLocked(n int) {
	last := len(sh.slots) - 1
	sh.weight -= sh.slots[n].weight
	delete(sh.index, sh.slots[n].key)
	if n != last {
		sh.slots[n] = sh.slots[last]
		sh.index[sh.slots[n].key] = int32(n)
	}
	sh.slots[last] = slot{}
	sh.slots = sh.slots[:last]
}
