package backend

import (
	"context"
	"time"
)

// Algorithm names how a bucket counts.
type Algorithm uint8

// The algorithms of the rule language. The zero value is the default.
const (
	TokenBucket Algorithm = iota
	LeakyBucket
	FixedWindow
	SlidingWindow
	SlidingLog
)

// Limit is the size of a bucket: Requests tokens come back every Period, and at most
// Burst are held. A limit of no requests is a ban; callers decide it without a store,
// so a store never sees one.
type Limit struct {
	Algorithm Algorithm
	// Requests is the number of tokens that come back per Period, 1 to 4294967295.
	Requests uint64
	// Period is the unit times its multiplier: whole seconds, at least one.
	Period time.Duration
	// Burst is the capacity in tokens, 1 to 4294967295.
	Burst uint64
}

// Mode says what a take that cannot be paid does to the rest of its call.
type Mode uint8

const (
	// Enforce denies the whole call.
	Enforce Mode = iota
	// Shadow denies nothing; an unpaid shadow take charges nothing.
	Shadow
	// Quota denies the call only if every quota take of the call is unpaid; an unpaid
	// quota take of a passing call charges nothing.
	Quota
)

// Overflow says what becomes of a charge larger than what is left.
type Overflow uint8

const (
	// Reject takes nothing: the take is over its limit.
	Reject Overflow = iota
	// Debt takes the whole charge, down to a level of minus the capacity. The take is
	// within its limit if at least one token was there. A debt is charged even if the
	// call is denied by another take, and never denies the others their charge.
	Debt
	// Auto is Debt on a bucket that was looked at (a take of zero hits) within the last
	// Period, else Reject. The mark is kept with the bucket, so that every instance
	// answers alike.
	Auto
)

// OnFailure says what decides a take while its store does not.
type OnFailure uint8

const (
	// FailDefault leaves it to the process's setting.
	FailDefault OnFailure = iota
	// FailLocal counts in a bucket of the process, with its share of rate and burst.
	FailLocal
	// FailAllow is always within the limit.
	FailAllow
	// FailDeny is always over it.
	FailDeny
)

// Source says what decided a take.
type Source uint8

const (
	// Bucketed is the bucket that the take names. It is the zero value.
	Bucketed Source = iota
	// LocalShare is a bucket of this process that stood in for it, by FailLocal.
	LocalShare
	// DegradedAllow is FailAllow: no bucket was asked.
	DegradedAllow
	// DegradedDeny is FailDeny: no bucket was asked.
	DegradedDeny
)

// MaxHits is the largest charge that is told apart: more counts as this many, so that
// every count is exact in a float64.
const MaxHits = 1 << 53

// Take is what one call asks of one bucket.
//
// With Hits and Give both zero it is a look: it is within the limit while at least one
// token is there, and takes nothing. With only Give it is a refund: always within the
// limit. With both it is a charge, after whose payment Give is put back.
type Take struct {
	// Key is the bucket's identity without the store's prefix. It belongs to the
	// caller: a store copies what it keeps. The part in braces, if any, names the slot
	// of a cluster; no two takes of one call have the same key.
	Key   []byte
	Limit Limit
	// Hits is the charge in tokens.
	Hits uint64
	// Give is the number of tokens to put back, up to full, if the call passes.
	Give     uint64
	Mode     Mode
	Overflow Overflow
	// OnFailure decides the take where the store cannot; stores themselves do not look at
	// it.
	OnFailure OnFailure
	// NoLease asks for the store's own answer: no tokens are fetched ahead for this take,
	// and it is not decided from memory.
	NoLease bool
	// Lease is the account of an instance that holds tokens of the bucket ahead of their
	// use; nil: it has none. The store brings it up to date, in a denied call too, unless it
	// returns an error: then the account as the store has it is not known. Only a
	// TokenBucket leases.
	Lease *Lease
}

// Look reports whether the take only asks.
func (t *Take) Look() bool { return t.Hits == 0 && t.Give == 0 }

// Decision is the answer to one Take.
type Decision struct {
	// OK reports whether this take could be paid, whatever became of the others.
	OK bool
	// Debt reports that the charge was taken as a debt (see Overflow): it was charged even
	// if it is not OK, and it denied nobody.
	Debt bool
	// Charged is the number of tokens that this take took: zero in a denied call
	// (a debt aside), for a look, and for an unpaid shadow or quota take.
	Charged uint64
	// Level is the number of tokens after the call, with its fraction; negative while
	// a debt is owed.
	Level float64
	// Wait is how long until the same take could be paid: zero if OK, the time to full
	// if it asks for more than the capacity. It is in whole microseconds, rounded up, and
	// at most MaxIdle.
	Wait time.Duration
	// Full is how long until the bucket is full if nobody takes from it, in whole
	// microseconds, rounded up, and at most MaxIdle.
	Full time.Duration
	// Source says what decided. For DegradedAllow and DegradedDeny only OK and Wait say
	// anything.
	Source Source
}

// Remaining is the number of whole tokens left, never negative.
func (d *Decision) Remaining() uint64 {
	return uint64(max(0, d.Level+slack(d.Level)))
}

// Store keeps buckets. All its methods are safe for concurrent use.
type Store interface {
	// Take decides the takes of one call and charges all of them or none (see Mode and
	// Overflow for the exceptions), writing one Decision per take to dst, which has the
	// length of takes. The error says that nothing is known about the decisions: the
	// caller's failure mode decides then. A take that failed may still have been
	// charged, so it must not be sent again.
	Take(ctx context.Context, takes []Take, dst []Decision) error
}
