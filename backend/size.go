package backend

import "unsafe"

// entrySize is what an entry of a sliding log takes.
const entrySize = int(unsafe.Sizeof(entry{}))

// Worth is how much it matters to keep the bucket at a time in microseconds of the store's
// clock: a store that has no room for all drops those that are worth least. It is the time
// until the bucket is full, which tells of a token bucket how much was taken. A window ends
// at the same time whatever was taken in it, so of one it is that time and the part taken.
func (b *Bucket) Worth(now int64) float64 { return (b.expires - float64(now)) * b.used }

// used is the part of a window's limit that was taken, or 1 of what is no window.
func used(m meter, l *Limit) float64 {
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		return 1
	default:
		return min(max(1-m.left(l)/max(l.Capacity(), 1), 0), 1)
	}
}

// Extra is the number of bytes that the bucket holds beyond its own struct: those of its
// windows, and of a sliding log, which grow with the tokens taken and shrink as they expire.
func (b *Bucket) Extra() (bytes int) {
	if b.windows != nil {
		bytes += int(unsafe.Sizeof(*b.windows))
	}
	if b.log != nil {
		bytes += int(unsafe.Sizeof(*b.log)) + cap(b.log.entries)*entrySize
	}
	return bytes
}
