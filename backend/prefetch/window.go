package prefetch

import (
	"math"

	"github.com/sluice-rls/sluice/backend"
)

// Tokens of a fixed window end with it, also those that are held here, or on their way.

// drift is the part of a time by which two clocks may differ after it.
const drift = 1.0 / 1000

// sample is the number of hits from which on it is no chance that only half of them came.
const sample = 16

// lasts is for how many nanoseconds from when an ask was sent the tokens that it brings may
// be spent as far as their window matters.
//
// The store says how long its window still lasts (Decision.Full, as part of it is used), by its
// own clock, from the moment at which it decided. The ask was sent before that. So the moment of
// sending and that time are never later than the end of the window: they are early by the time
// that the ask was on its way. As the one time runs here and the other there, a thousandth is
// taken off, which is more than clocks drift apart.
func lasts(d *backend.Decision) float64 { return float64(d.Full) * (1 - drift) }

// windowOf is the number of the window that an answer is of; 0 where there is none.
func (z *size) windowOf(generation int64) int64 {
	if !z.window {
		return 0
	}
	return z.limit.Window(generation)
}

// windowLocked brings the entry to the window of an answer. What is held or owed of another one
// is gone before the new one can be seen, see lease.
func (s *Store) windowLocked(e *entry, a *ask, d *backend.Decision) {
	z, is := a.size, a.size.windowOf(a.lease.Generation)
	if is != z.windowOf(e.generation) {
		s.voidLocked(e)
		s.expired.Add(a.lease.Back)
	} else {
		s.returned.Add(a.lease.Back)
		if d.OK { // else those who are denied ask so seldom that it says nothing
			e.share = a.lease.Share
		}
	}
	e.window.Store(is)
	e.over = a.sent + int64(lasts(d))
}

// void drops the tokens of an entry whose window is over, and reports whether it is. Nothing
// has to be told to the store.
func (s *Store) void(e *entry) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.size.Load().window || s.now() < e.over {
		return false
	}
	s.voidLocked(e)
	return true
}

func (s *Store) voidLocked(e *entry) {
	held := e.tokens.Swap(0)
	e.asked += e.held - held // spent since the count
	s.expired.Add(uint64(held + e.owed))
	e.held, e.owed, e.counted = 0, 0, 0
}

// wishLocked is the number of tokens that an entry wishes to hold: those that it will use within
// the horizon. Of a window it wishes no more than it will use before the end, as nobody else
// could use them then; and at first, when all come at once, no more than its share of what may be
// out, as it was in the last window.
func (e *entry) wishLocked(z *size, now int64) float64 {
	if !z.window {
		return min(e.rate*horizon.Seconds(), z.most)
	}
	rest := float64(e.ends.Load() - now)
	if rest <= 0 {
		rest = float64(z.limit.Period)
	}
	use := e.rate * min(rest, float64(horizon)) / 1e9
	wish := min(use+2*math.Sqrt(use), z.most)
	if e.share > 0 {
		wish = min(wish, max(e.share*z.most*part, smallest))
	}
	return wish
}

// idles reports whether the entry spends its window's tokens less than half as fast as when it
// asked for them. They should go back before the window ends, while others can use them; those
// of a bucket could be used at any later time as well, and wait until they expire.
func (e *entry) idles(now int64) bool {
	if !e.size.Load().window {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	expected := e.rate * float64(now-e.last) / 1e9
	tokens := e.tokens.Load()
	return tokens > 0 && expected >= sample && 2*float64(e.held-tokens) < expected
}
