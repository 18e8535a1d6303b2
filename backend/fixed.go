package backend

import "math"

// fixedWindow counts the tokens taken in windows of one period that begin at multiples of
// the period since 1970: those of envoyproxy/ratelimit. At the edge of two windows twice
// the limit can pass at once. It takes 24 bytes for each key in Redis.
//
// What counts is what was taken, so a limit that is changed holds for the whole of the
// running window. A debt ends with its window.
type fixedWindow struct {
	// at is the time up to which used is true, in microseconds; zero if nobody has touched
	// it. used is the number of tokens taken in the window of that time.
	at, used float64
}

func (s *fixedWindow) open(l *Limit, now float64) (back bool) {
	at := later(s.at, now)
	back = at < s.at
	if window(l, at) > window(l, s.at) {
		s.used = 0
	}
	s.at = at
	return back
}

func (s *fixedWindow) left(l *Limit) float64 { return remains(l, s.used) }

func (s *fixedWindow) take(_ *Limit, n float64) { s.used += n }

func (s *fixedWindow) give(_ *Limit, n float64) { s.used = max(s.used-n, 0) }

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

// window is the number of the window of a time.
func window(l *Limit, at float64) float64 { return math.Floor(at / period(l)) }

// remains is what a limit leaves of its capacity if so much of it is used. After a lowering
// that can be far below zero; it is shown as the deepest debt there is.
func remains(l *Limit, used float64) float64 { return max(l.Capacity()-used, -l.Capacity()) }
