package backend

import (
	"math"
	"time"
)

// LeaseLife is the longest time, from the moment at which an ask is sent, for which the
// tokens that it brings may be spent. It is also the length of the generations in which a
// bucket counts what is out, so it is the same for all who share one.
const LeaseLife = 4 * time.Second

const (
	// leaseMicros is LeaseLife in microseconds.
	leaseMicros = float64(LeaseLife / time.Microsecond)
	// demandMicros is the time in which the count of hits asked for falls to its e-th part,
	// nearly.
	demandMicros = 250e3
	// smallest is the number of tokens below which a lease is not worth its call.
	smallest = 2
	// crowd is the number of hits asked for lately from which on shares are told apart.
	crowd = 10
)

// Leases reports whether tokens of a bucket may be handed out ahead of their use: whether
// it makes no difference to the algorithm when, after that, they are used.
//
//   - A token bucket leases: a token that is out keeps its place in the bucket from filling.
//   - A fixed window leases: a token is used at any time of its window, and what is not used
//     ends with it.
//   - A leaky bucket does not: it is there for an even pace, and tokens in stock are a burst.
//   - A sliding log does not: each token comes back one period after it was used, and one
//     that is used later than it was counted would come back too early.
//   - A sliding window does not. It counts by windows, which would allow it, but its level
//     rises as the window before fades, and how much that has only the store knows. So an
//     instance could tell from memory neither what is left nor that a call cannot be paid,
//     and would ask for each call just when there are too many.
func (a Algorithm) Leases() bool { return a == TokenBucket || a == FixedWindow }

// Lease is the account of an instance with one bucket, and what it asks of it: some tokens
// are handed out ahead of their use, so that calls can be decided without the store.
//
// The bucket counts what is out. A token bucket holds at most its capacity less that, and a
// fixed window counts what is out as used. So the tokens left in it and those that instances
// may still spend are together never more than the capacity, whoever crashes and whichever
// message is lost or late: an instance that does not say what became of its tokens is
// believed to hold them until they may not be spent any more, which takes one to two times
// LeaseLife.
//
// The tokens of a fixed window may only be spent in it. What was granted in another window
// than that of an ask is gone: neither does it stay held, nor does it go back.
type Lease struct {
	// Want is the number of tokens wished for; 0 asks for none.
	Want uint64
	// Held is the number of tokens that are held and stay so: they are the instance's for
	// another LeaseLife.
	Held uint64
	// Back is the number of tokens that are given back. They are there for the charge of
	// the same take.
	Back uint64
	// Counted and Generation are what the last answer left here: the bucket counts that
	// many tokens for this instance. With Counted zero, because that answer was lost, the
	// bucket forgets them in time. Generation, which is then that of an earlier answer, says
	// where Held and Back come from. It is the number of a stretch of LeaseLife; of a fixed
	// window, the time of the answer by the store's clock, in microseconds since 1970 (see
	// Limit.Window).
	Counted    uint64
	Generation int64
	// Asked is the number of hits that calls asked for since the last ask, and Demand the
	// instance's own count of them by Decay; both are for its share of a scarce bucket.
	Asked  uint64
	Demand float64
	// Fraction is the part of the bucket's tokens that may be out, 0 to 1.
	Fraction float64
	// Scarce is the number of tokens below which the bucket is scarce, and each instance
	// gets its share; 0: never.
	Scarce float64
	// Calls is the number of calls for which the take stands, each of Hits; 0 is 1. With
	// more, as many are charged as can be paid, and the take is OK if one is. Such a take is
	// alone in its call, and a charge that is rejected if it cannot be paid.
	Calls uint64

	// Granted, in the answer, is the number of tokens that came with it.
	Granted uint64
	// Share, in the answer, is the instance's part, 0 to 1, of all hits asked for lately.
	Share float64
}

// valid reports whether a take may have the lease.
func (l *Lease) valid(t *Take, alone bool) bool {
	plain := alone && t.Hits > 0 && t.Give == 0 && t.Overflow == Reject
	return t.Limit.Algorithm.Leases() && (l.Calls <= 1 || plain)
}

// Decay is what is left of a count of hits after some time: about its e-th part after a
// quarter of a second. It is a polynomial, so that Lua and Go get the same bits.
func Decay(count float64, elapsed time.Duration) float64 {
	return decay(count, float64(elapsed.Microseconds()))
}

func decay(count, micros float64) float64 {
	x := max(micros, 0) / demandMicros
	f := 1 + float64(x/4)
	f = 1 + float64(x/3*f)
	f = 1 + float64(x/2*f)
	f = 1 + float64(x*f)
	return count / f
}

// generation is the number of the stretch of LeaseLife that a time lies in.
func generation(at float64) float64 { return math.Floor(at / leaseMicros) }

// leased is what a bucket that leases knows of those who hold its tokens.
type leased struct {
	// demand is the number of hits that instances with leases asked for lately. current and
	// before are the tokens out on lease: those counted in the generation of the bucket's
	// time, and in the one before.
	demand, current, before float64
}

// out is the number of tokens that instances may still spend, and maybe of more.
func (s *leased) out() float64 { return s.current + s.before }

// age brings what is out from the generation of one time to that of another: it forgets what
// was out two generations ago. On a clock that was set back, all that is out begins to age
// anew.
func (s *leased) age(from, to float64) {
	switch was, is := generation(from), generation(to); {
	case is == was+1:
		s.current, s.before = 0, s.current
	case is > was:
		s.current, s.before = 0, 0
	case is < was:
		s.current, s.before = s.current+s.before, 0
	}
}

// account settles an instance's last answer, so many generations after it, in an s that has
// aged: what is counted for it is so no longer, but for what it still holds. elapsed is the
// time in microseconds since the last call.
func (s *leased) account(l *Lease, generations, elapsed float64) {
	counted := float64(min(l.Counted, MaxHits))
	switch generations {
	case 0:
		s.current = max(s.current-counted, 0)
	case 1:
		s.before = max(s.before-counted, 0)
	}
	s.current += float64(min(l.Held, MaxHits))
	s.demand = decay(s.demand, elapsed) + float64(min(l.Asked, MaxHits))
}

// grant says how many tokens of a level go out, which its caller takes from it, and writes
// the answer. None go out unless the take got all that it asked for.
func (s *leased) grant(t *Take, paid bool, level float64) float64 {
	l := t.Lease
	l.Granted, l.Share = 0, 1
	if l.Demand < s.demand {
		l.Share = l.Demand / s.demand
	}
	if paid {
		out := s.out()
		free := math.Floor(level + slack(level))
		n := (float64(l.Fraction*(level+out)) - out) / 4
		if free < 2*l.Scarce && s.demand >= crowd {
			n = max(n, float64(l.Share*min(free, l.Scarce))-float64(min(l.Held, MaxHits)))
		}
		n = math.Floor(min(n, free, float64(min(l.Want, MaxHits))))
		if n >= smallest {
			s.current += n
			l.Granted = uint64(n)
		}
	}
	l.Counted = l.Held + l.Granted
	return float64(l.Granted)
}

// payable is the charge of a take that is OK, from so many tokens.
func (t *Take) payable(left float64) float64 {
	hits := float64(min(t.Hits, MaxHits))
	if t.Lease == nil || t.Lease.Calls <= 1 {
		return hits
	}
	return hits * min(float64(min(t.Lease.Calls, MaxHits)), math.Floor((left+slack(hits))/hits))
}
