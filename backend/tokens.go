package backend

import "math"

// tokens is a token bucket; and a leaky bucket, which is one of a small capacity, so that
// calls pass at an even pace. It takes 48 bytes for each key in memory, 56 in Redis.
//
// The tokens come back by the elapsed time and nothing else, and fractions are kept.
type tokens struct {
	// level is the number of tokens at the time at, negative while a debt is owed.
	level, at float64
	// top is the highest capacity that the bucket was ever given; zero if nobody has
	// touched it. A raise of the limit gives capacity - top once, and a lowering leaves
	// top, so that old and new rules side by side cannot make tokens.
	top float64
}

// open brings the bucket to now. One that nobody touched is full.
func (s *tokens) open(l *Limit, now float64) (back bool) {
	capacity := float64(l.Burst)
	if s.top == 0 {
		*s = tokens{level: capacity, at: now, top: capacity}
		return false
	}
	changed := capacity > s.top || math.Abs(s.level) > capacity
	if capacity > s.top {
		s.level += capacity - s.top
		s.top = capacity
	}
	s.level = max(min(s.level, capacity), -capacity)
	elapsed := later(s.at, now) - s.at
	if elapsed > 0 {
		s.level = min(s.level+float64(elapsed*float64(l.Requests))/period(l), capacity)
	}
	s.at += elapsed
	return changed || elapsed < 0
}

func (s *tokens) left(*Limit) float64 { return s.level }

func (s *tokens) take(l *Limit, n float64) { s.level = max(s.level-n, -float64(l.Burst)) }

func (s *tokens) give(l *Limit, n float64) { s.level = min(s.level+n, float64(l.Burst)) }

func (s *tokens) wait(l *Limit, now, need float64) float64 {
	missing := need - slack(need)/2 - s.level
	if missing <= 0 {
		return 0
	}
	return math.Ceil(float64(missing*period(l))/float64(l.Requests)) + (s.at - now)
}

// idle lasts, after a lowering, until the highest capacity would be full again: else a
// raise back would find it full too early.
func (s *tokens) idle(l *Limit, now float64) float64 {
	missing := s.top - s.level
	return math.Ceil(float64(missing*period(l))/float64(l.Requests)) + (s.at - now)
}
