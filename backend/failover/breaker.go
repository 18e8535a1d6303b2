package failover

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// windowParts of windowPart each are the window in which answers are counted.
	windowParts = 5
	windowPart  = 100 * time.Millisecond
	// fewest is the number of answers in the window from which on the breaker opens if half
	// of them are bad.
	fewest = 10
	// streak is the number of bad answers in a row that open it whatever was before, if
	// they came over streakTime at least: a short halt of a busy server is no outage.
	streak     = 5
	streakTime = 50 * time.Millisecond
)

// breaker watches one server.
type breaker struct {
	open    atomic.Bool
	probing atomic.Bool
	last    atomic.Int64 // when the server last said something, in Unix nanoseconds

	mu    sync.Mutex // guards the rest
	parts [windowParts]struct {
		number    int64 // of the part since 1970
		good, bad int
	}
	inARow      int
	inARowSince time.Time
}

func (b *breaker) heard(now time.Time) { b.last.Store(now.UnixNano()) }

// heardSince reports whether the server has said something since a time.
func (b *breaker) heardSince(t time.Time) bool { return b.last.Load() >= t.UnixNano() }

// count adds an answer, and reports whether the breaker opened by it.
func (b *breaker) count(now time.Time, bad bool) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	number := now.UnixNano() / int64(windowPart)
	p := &b.parts[number%windowParts]
	if p.number != number {
		p.number, p.good, p.bad = number, 0, 0
	}
	if !bad {
		p.good++
		b.inARow = 0
		return false
	}
	p.bad++
	if b.inARow == 0 {
		b.inARowSince = now
	}
	b.inARow++
	if b.open.Load() || !b.brokenLocked(now, number) {
		return false
	}
	b.open.Store(true)
	return true
}

func (b *breaker) brokenLocked(now time.Time, number int64) bool {
	if b.inARow >= streak && now.Sub(b.inARowSince) >= streakTime {
		return true
	}
	good, bad, parts := 0, 0, 0
	for i := range b.parts {
		p := &b.parts[i]
		if number-p.number >= windowParts || p.good+p.bad == 0 {
			continue
		}
		good += p.good
		bad += p.bad
		if p.bad > 0 {
			parts++
		}
	}
	return good+bad >= fewest && bad >= good && parts > 1
}

// close forgets all that was, and lets calls through again.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.parts[:])
	b.inARow = 0
	b.open.Store(false)
}
