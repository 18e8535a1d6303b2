package prefetch

import (
	"sync/atomic"
	"time"
)

// seenSlots is how many keys are remembered at most, in half a megabyte.
const seenSlots = 1 << 16

// seen remembers for a while which keys were asked for, in one word for each: most keys of
// many come once and not soon again, and are worth no entry. Keys that share a slot forget
// each other, which costs the one that is asked for often an ask and no more.
type seen struct {
	slots [seenSlots]atomic.Uint64 // the upper half of the hash, then the time in milliseconds
}

// soon is the time within which a key that is asked for again is worth an entry.
const soon = horizon / 4

// again notes that a key was asked for now, and reports whether it was soon after the last
// time.
func (s *seen) again(hash uint64, now int64) bool {
	const millis = int64(time.Millisecond)
	slot := &s.slots[hash%seenSlots]
	ticks := uint32(now/millis) + 1 // so that no slot in use is zero
	last := slot.Swap(hash&^(1<<32-1) | uint64(ticks))
	passed := int64(ticks-uint32(last)) * millis
	return last != 0 && last>>32 == hash>>32 && passed <= int64(soon)
}
