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
	// demand is the number of hits that instances with leases asked for lately. current and
	// before are the tokens out on lease: those counted in the generation of at, and in the
	// one before.
	demand, current, before float64
}

// open brings the bucket to now. One that nobody touched is full.
func (s *tokens) open(l *Limit, now float64) (keep bool) { return s.openFor(nil, l, now) }

// openFor is open for a take with a lease, which may be nil: its account is settled before
// the refill, and what it gives back is there after.
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
	s.age(at)
	if lease != nil {
		s.account(lease, at)
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

func (s *tokens) left(*Limit) float64 { return s.level }

func (s *tokens) take(l *Limit, n float64) { s.level = max(s.level-n, -float64(l.Burst)) }

func (s *tokens) give(l *Limit, n float64) { s.level = min(s.level+n, s.room(l)) }

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
