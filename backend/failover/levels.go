package failover

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

const (
	levelSets    = 1 << 14
	levelsPerSet = 8
)

// levels remembers what the store told last of the buckets that were not full: of some
// 130,000, in 4 MiB whatever comes. Where there is no room, the one goes whose loss gives
// least away, so that clients who come once do not push those out who were denied. Keys are
// told apart by a hash of 64 bits.
type levels struct {
	seed maphash.Seed
	sets []levelSet
}

type levelSet struct {
	mu      sync.Mutex // guards entries
	entries [levelsPerSet]level
}

type level struct {
	hash  uint64
	at    int64 // Unix microseconds
	until int64 // from when on it is worth nothing, see backend.Bucket.Worth
	level float64
}

func newLevels() *levels {
	return &levels{seed: maphash.MakeSeed(), sets: make([]levelSet, levelSets)}
}

func (l *levels) of(key []byte) (*levelSet, uint64) {
	hash := maphash.Bytes(l.seed, key)
	return &l.sets[hash%levelSets], hash
}

// soonFull is the time to full within which a bucket is full again before anything can stand in
// for the store.
const soonFull = 10 * time.Millisecond

// note remembers what the store answered.
func (l *levels) note(t *backend.Take, d *backend.Decision) {
	if d.Full < soonFull && d.Level > 0 && d.Level < t.Limit.Capacity() {
		return // what was noted before says the same by then
	}
	set, hash := l.of(t.Key)
	set.mu.Lock()
	defer set.mu.Unlock()
	least := 0
	for i := range set.entries {
		if set.entries[i].hash == hash {
			least = i
			break
		}
		if set.entries[i].until < set.entries[least].until {
			least = i
		}
	}
	e := &set.entries[least]
	capacity := t.Limit.Capacity()
	if d.Level >= capacity { // a key that nobody knows is full, too
		if e.hash == hash {
			*e = level{}
		}
		return
	}
	now, used := time.Now().UnixMicro(), min(1-d.Level/capacity, 1)
	until := now + int64(used*float64(d.Full.Microseconds()))
	if e.hash == hash || e.until <= until {
		*e = level{hash, now, until, d.Level}
	}
}

// get gives the level that the store's bucket has by now if nobody else took from it; false
// if that is not known.
func (l *levels) get(t *backend.Take, now time.Time) (float64, bool) {
	set, hash := l.of(t.Key)
	set.mu.Lock()
	defer set.mu.Unlock()
	for i := range set.entries {
		e := &set.entries[i]
		if e.hash != hash || e.at == 0 {
			continue
		}
		passed := max(now.UnixMicro()-e.at, 0)
		period := t.Limit.Period.Microseconds()
		switch t.Limit.Algorithm {
		case backend.TokenBucket, backend.LeakyBucket:
			return min(e.level+float64(passed)*float64(t.Limit.Requests)/float64(period), t.Limit.Capacity()), true
		default: // windows: what was taken is gone after two at the latest
			return e.level, passed < 2*period
		}
	}
	return 0, false
}
