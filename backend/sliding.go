package backend

import "math"

// slidingWindow counts the tokens taken in the same windows as fixedWindow, and adds to
// those of the running window the ones of the window before, as far as that still lies
// within one period: half of them in the middle of the window. It is as if they had been
// taken evenly, so the true number in some period may be off, but no edge lets twice the
// limit pass. It takes 32 bytes for each key in Redis.
//
// What counts is what was taken, so a limit that is changed holds for the last period as
// well. A debt is gone after two periods.
type slidingWindow struct {
	// at is the time up to which the counts are true, in microseconds; zero if nobody has
	// touched it. current and previous are the tokens taken in the window of that time and
	// in the one before.
	at, current, previous float64
}

func (s *slidingWindow) open(l *Limit, now float64) (back bool) {
	at := later(s.at, now)
	back = at < s.at
	switch passed := window(l, at) - window(l, s.at); {
	case passed == 1:
		s.current, s.previous = 0, s.current
	case passed > 1:
		s.current, s.previous = 0, 0
	}
	s.at = at
	return back
}

// weight is the part of the window before that lies within the last period.
func (s *slidingWindow) weight(l *Limit) float64 {
	return 1 - (s.at-float64(window(l, s.at)*period(l)))/period(l)
}

func (s *slidingWindow) used(l *Limit) float64 {
	return s.current + float64(s.previous*s.weight(l))
}

func (s *slidingWindow) left(l *Limit) float64 { return remains(l, s.used(l)) }

func (s *slidingWindow) take(_ *Limit, n float64) { s.current += n }

// give takes back what was taken last.
func (s *slidingWindow) give(l *Limit, n float64) {
	latest := min(n, s.current)
	s.current -= latest
	s.previous = max(s.previous-float64((n-latest)/s.weight(l)), 0)
}

// wait finds when the window before has left enough, or, if the running one alone has
// too much, when that has become the one before and left enough.
func (s *slidingWindow) wait(l *Limit, now, need float64) float64 {
	capacity := l.Capacity()
	most := max(capacity-need+Epsilon/2-float64(capacity*rounding), 0) // that may be used
	if s.used(l) <= most {
		return 0
	}
	begin := float64(window(l, s.at) * period(l))
	counted, free := s.previous, most-s.current
	if free < 0 {
		begin += period(l)
		counted, free = s.current, most
	}
	return math.Ceil(float64((1-free/counted)*period(l))) + (begin - now)
}

func (s *slidingWindow) idle(l *Limit, now float64) float64 {
	begin := float64(window(l, s.at) * period(l))
	switch {
	case s.current > 0:
		return begin + float64(2*period(l)) - now
	case s.previous > 0:
		return begin + period(l) - now
	default:
		return 0
	}
}
