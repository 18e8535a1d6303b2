package storetest

import (
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// leaseTests are of takes with leases, for which a store keeps count of what is out.
var leaseTests = []test{
	{"what is out makes room for no more", func(b *bench) {
		limit := tokens(1000, s)
		a := b.lease(limit, 0, backend.Lease{Want: 100})
		b.want(a, 962, 37) // a quarter of 15 % of 1000, rounded down, and the hit below
		b.clock(s)
		b.call([]backend.Take{{Key: []byte("k"), Limit: limit}}, backend.Decision{OK: true, Level: 963, Full: 37 * time.Millisecond})
		b.clock(2 * backend.LeaseLife)
		b.want(b.lease(limit, 0, backend.Lease{}), 999, 0) // nobody said what became of them
	}},
	{"what goes back is there for the charge beside it", func(b *bench) {
		limit := tokens(100, day)
		a := b.lease(limit, 80, backend.Lease{Want: 10, Fraction: 1})
		b.want(a, 15, 4)
		a.lease.Back = 4
		b.want(b.lease(limit, 18, a.lease), 0, 0)
	}},
	{"what is held stays out", func(b *bench) {
		limit := tokens(1000, day)
		a := b.lease(limit, 0, backend.Lease{Want: 100, Fraction: 0.2})
		b.want(a, 950, 49)
		a.lease.Held = 20
		a = b.lease(limit, 0, a.lease)
		b.want(a, 906, 43)
		if a.lease.Counted != 63 {
			b.Errorf("%d counted, want the 20 that were held and 43", a.lease.Counted)
		}
	}},
	{"a take for several calls charges those that can be paid", func(b *bench) {
		limit := tokens(10, day)
		a := b.lease(limit, 2, backend.Lease{Calls: 3, Want: 5, Fraction: 1})
		b.want(a, 1, 0)
		if !a.OK || a.Charged != 9 {
			b.Errorf("%+v, want three calls of 3 charged", a.Decision)
		}
	}},
	{"a denied call leases nothing, and settles the account", func(b *bench) {
		limit := tokens(1000, day)
		a := b.lease(limit, 0, backend.Lease{Want: 100})
		a.lease.Back, a.lease.Want = 30, 100
		b.want(b.lease(limit, 5000, a.lease), 992, 0)
	}},
	{"a lowered limit counts what is out", func(b *bench) {
		a := b.lease(tokens(1000, day), 0, backend.Lease{Want: 100})
		b.want(a, 962, 37)
		b.want(b.lease(tokens(100, day), 0, backend.Lease{}), 62, 0)
	}},
	{"a token on lease counts as used in its fixed window", func(b *bench) {
		limit := by(backend.FixedWindow, tokens(1000, 60*s))
		a := b.lease(limit, 0, backend.Lease{Want: 100})
		b.want(a, 962, 37)
		if a.Full != 60*s {
			b.Errorf("full in %v, want the minute until the window ends", a.Full)
		}
		b.clock(59 * s)
		b.call([]backend.Take{{Key: []byte("k"), Limit: limit}}, backend.Decision{OK: true, Level: 962, Full: s})
		b.call([]backend.Take{{Key: []byte("k"), Limit: limit, Hits: 963}}, backend.Decision{Level: 962, Full: s, Wait: s})
		b.clock(60 * s)
		b.want(b.lease(limit, 0, backend.Lease{Want: 100}), 962, 37)
	}},
	{"tokens go back to the fixed window that they are from", func(b *bench) {
		limit := by(backend.FixedWindow, tokens(1000, 60*s))
		a := b.lease(limit, 0, backend.Lease{Want: 100})
		b.clock(50 * s)
		a.lease.Back = 30
		a = b.lease(limit, 991, a.lease) // also for the charge beside them
		b.want(a, 0, 0)
		b.clock(60 * s)
		old := b.lease(limit, 0, backend.Lease{Want: 20, Back: 7, Counted: 7, Generation: a.lease.Generation})
		b.want(old, 979, 20)
		b.clock(120 * s)
		b.want(b.lease(limit, 0, backend.Lease{}), 999, 0)
		old.lease.Back, old.lease.Want = 20, 0
		b.want(b.lease(limit, 0, old.lease), 998, 0)
	}},
	{"what is held of a fixed window stays used", func(b *bench) {
		limit := by(backend.FixedWindow, tokens(1000, day))
		a := b.lease(limit, 0, backend.Lease{Want: 100, Fraction: 0.2})
		b.want(a, 950, 49)
		b.clock(3 * backend.LeaseLife)
		a.lease.Held = 20
		a = b.lease(limit, 0, a.lease)
		b.want(a, 906, 43)
		b.call([]backend.Take{{Key: []byte("k"), Limit: limit, Give: 999}}, // but not what was spent
			backend.Decision{OK: true, Level: 937, Full: day/2 - b.at})
	}},
	{"a lowered limit of a fixed window counts what is out", func(b *bench) {
		limit := func(n uint64) backend.Limit { return by(backend.FixedWindow, tokens(n, day)) }
		a := b.lease(limit(1000), 0, backend.Lease{Want: 100})
		b.want(a, 962, 37)
		b.want(b.lease(limit(100), 0, backend.Lease{Want: 100}), 61, 0)
		b.want(b.lease(limit(30), 0, backend.Lease{Back: 37, Counted: 37, Generation: a.lease.Generation}), 27, 0)
	}},
}

// leased is an answer to a take with a lease.
type leased struct {
	backend.Decision
	lease backend.Lease
}

// lease is a take of so many hits and one, with a lease of 0.15 of the bucket if it does not
// say another part.
func (b *bench) lease(limit backend.Limit, hits uint64, lease backend.Lease) leased {
	b.Helper()
	if lease.Fraction == 0 {
		lease.Fraction = 0.15
	}
	got := b.take(backend.Take{Key: []byte("k"), Limit: limit, Hits: hits + 1, Lease: &lease})[0]
	return leased{got, lease}
}

// want checks the level, to the token, and what was granted.
func (b *bench) want(got leased, level int, granted uint64) {
	b.Helper()
	if int(got.Level+1e-6) != level || got.lease.Granted != granted {
		b.Errorf("at %v: level %v and %d granted, want %d and %d", b.at, got.Level, got.lease.Granted, level, granted)
	}
}
