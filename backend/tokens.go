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
	leased
}

// open brings the bucket to now. One that nobody touched is full.
func (s *tokens) open(l *Limit, now float64) (keep bool) { return s.openFor(nil, l, now) }

// openFor settles the account of a lease before the refill, for which that makes room.
func (s *tokens) openFor(lease *Lease, l *Limit, now float64) (keep bool) {
	capacity := float64(l.Burst)
	if s.top == 0 {
		*s = tokens{level: capacity, at: now, top: capacity}
	}
	changed := capacity > s.top || math.Abs(s.level) > capacity
	if capacity > s.top {
		s.level += capacity - s.top
		s.top = capacity
	}
	at := later(s.at, now)
	elapsed := at - s.at
	s.age(s.at, at)
	if lease != nil {
		s.account(lease, generation(at)-float64(lease.Generation), elapsed)
	}
	room := s.room(l)
	s.level = max(min(s.level, room), -capacity)
	if elapsed > 0 {
		s.level = min(s.level+float64(elapsed*float64(l.Requests))/period(l), room)
	}
	s.at = at
	if lease != nil {
		s.give(l, float64(min(lease.Back, MaxHits)))
	}
	return changed || elapsed < 0
}

// room is the most tokens that the bucket may hold: its capacity less what is out.
func (s *tokens) room(l *Limit) float64 {
	return max(float64(l.Burst)-s.current-s.before, 0)
}

func (s *tokens) left(*Limit) float64 { return s.level }

func (s *tokens) take(l *Limit, n float64) { s.level = max(s.level-n, -float64(l.Burst)) }

func (s *tokens) give(l *Limit, n float64) { s.level = min(s.level+n, s.room(l)) }

func (s *tokens) lease(t *Take, paid bool) {
	s.level -= s.grant(t, paid, s.level)
	t.Lease.Generation = int64(generation(s.at))
}

func (s *tokens) wait(l *Limit, now, need float64) float64 {
	missing := need - slack(need)/2 - s.level
	if missing <= 0 {
		return 0
	}
	return math.Ceil(float64(missing*period(l))/float64(l.Requests)) + (s.at - now)
}

// idle lasts, after a lowering, until the highest capacity would be full again: else a
// raise back would find it full too early; and at least for as long as tokens are out.
func (s *tokens) idle(l *Limit, now float64) float64 {
	missing := s.top - s.level
	full := math.Ceil(float64(missing*period(l))/float64(l.Requests)) + (s.at - now)
	switch {
	case s.current > 0:
		return max(full, float64((generation(s.at)+2)*leaseMicros)-now)
	case s.before > 0:
		return max(full, float64((generation(s.at)+1)*leaseMicros)-now)
	default:
		return full
	}
}
