package backend

import "math"

// tokens is the state of a token bucket, and of a leaky bucket, which is the same with a
// smaller capacity. All of it is float64, as Lua has it: microseconds since 1970 and
// whole tokens are exact below 2^53.
//
// The tokens come back by the elapsed time and nothing else, and fractions are kept. The
// bucket's clock never runs back: two clocks that disagree, or a call that comes late,
// must not fill the same stretch of time twice.
type tokens struct {
	// level is the number of tokens at the time at, negative while a debt is owed.
	level, at float64
	// top is the highest capacity that the bucket was ever given; zero if nobody has
	// touched it. A raise of the limit gives capacity - top once, and a lowering leaves
	// top, so that old and new rules side by side cannot make tokens.
	top float64
}

// open brings the bucket to now. One that nobody touched is full.
func (s *tokens) open(l *Limit, now float64) {
	capacity := float64(l.Burst)
	if s.top == 0 {
		*s = tokens{level: capacity, at: now, top: capacity}
		return
	}
	if capacity > s.top {
		s.level += capacity - s.top
		s.top = capacity
	}
	s.level = max(min(s.level, capacity), -capacity)
	switch elapsed := now - s.at; {
	case elapsed > 0:
		s.level = min(s.level+float64(elapsed*float64(l.Requests))/period(l), capacity)
		s.at = now
	case elapsed < -maxAhead:
		s.at = now
	}
}

// charge takes n tokens that were found to be there.
func (s *tokens) charge(n float64) { s.level = max(s.level-n, 0) }

// owe takes n tokens whether or not they are there, down to minus the capacity.
func (s *tokens) owe(l *Limit, n float64) { s.level = max(s.level-n, -float64(l.Burst)) }

// give puts n tokens back, up to full.
func (s *tokens) give(l *Limit, n float64) { s.level = min(s.level+n, float64(l.Burst)) }

// wait is the time in microseconds after now at which need tokens will be there.
func (s *tokens) wait(l *Limit, now, need float64) float64 {
	missing := need - slack(need)/2 - s.level
	if missing <= 0 {
		return 0
	}
	return math.Ceil(float64(missing*period(l))/float64(l.Requests)) + (s.at - now)
}

// idle is the time in microseconds after now at which the bucket, left alone, is as if
// nobody had touched it. After a lowering that takes until the highest capacity would be
// full again: else a raise back would find it full too early.
func (s *tokens) idle(l *Limit, now float64) float64 {
	missing := s.top - s.level
	return math.Ceil(float64(missing*period(l))/float64(l.Requests)) + (s.at - now)
}
