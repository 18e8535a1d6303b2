package backend

import "math"

// fixedWindow counts the tokens taken in windows of one period that begin at multiples of
// the period since 1970: those of envoyproxy/ratelimit. At the edge of two windows twice
// the limit can pass at once. It takes 24 bytes for each key in Redis, 48 once it has
// leased in a window.
//
// What counts is what was taken, so a limit that is changed holds for the whole of the
// running window. A debt ends with its window.
//
// A token that is leased counts as taken until it comes back in the same window; what does
// not come back is gone with the window.
type fixedWindow struct {
	// at is the time up to which used is true, in microseconds; zero if nobody has touched
	// it. used is the number of tokens taken in the window of that time, those on lease
	// among them.
	at, used float64
	leased
}

func (s *fixedWindow) open(l *Limit, now float64) (back bool) { return s.openFor(nil, l, now) }

// openFor forgets with a window also who holds tokens of it. What an account has of another
// window is not given back: that would be to a window that it was not taken from. What it
// holds of one counts as out until its next ask, though it is not: that makes leases smaller
// for a moment, and nothing else.
func (s *fixedWindow) openFor(lease *Lease, l *Limit, now float64) (back bool) {
	at := later(s.at, now)
	back = at < s.at
	if window(l, at) > window(l, s.at) {
		*s = fixedWindow{at: at}
	}
	s.age(s.at, at)
	if lease != nil {
		answered, generations := float64(lease.Generation), float64(2)
		same := window(l, answered) == window(l, at)
		if same {
			generations = generation(at) - generation(answered)
		}
		s.account(lease, generations, at-s.at)
		if same {
			s.give(l, float64(min(lease.Back, MaxHits)))
		}
	}
	s.at = at
	return back
}

func (s *fixedWindow) left(l *Limit) float64 { return remains(l, s.used) }

func (s *fixedWindow) take(_ *Limit, n float64) { s.used += n }

// give leaves what is out as used, since it may still be spent: who gives back more than was
// spent, or what such a refund made unused already, gets no more than the rest.
func (s *fixedWindow) give(_ *Limit, n float64) { s.used = max(s.used-n, min(s.used, s.out())) }

func (s *fixedWindow) lease(t *Take, paid bool) {
	s.used += s.grant(t, paid, s.left(&t.Limit))
	t.Lease.Generation = int64(s.at)
}

// wait is until the window ends, whatever is missing.
func (s *fixedWindow) wait(l *Limit, now, need float64) float64 {
	if s.left(l) >= need {
		return 0
	}
	return s.end(l) - now
}

func (s *fixedWindow) idle(l *Limit, now float64) float64 {
	if s.used <= 0 {
		return 0
	}
	return s.end(l) - now
}

func (s *fixedWindow) end(l *Limit) float64 { return float64((window(l, s.at) + 1) * period(l)) }

// Window is the number of the window of the limit that a time lies in, given in microseconds
// since 1970.
func (l *Limit) Window(at int64) int64 { return int64(window(l, float64(at))) }

// window is the number of the window of a time.
func window(l *Limit, at float64) float64 { return math.Floor(at / period(l)) }

// remains is what a limit leaves of its capacity if so much of it is used. After a lowering
// that can be far below zero; it is shown as the deepest debt there is.
func remains(l *Limit, used float64) float64 { return max(l.Capacity()-used, -l.Capacity()) }
