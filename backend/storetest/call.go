package storetest

import (
	"fmt"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// bucketName is a key of a tenant of its own: on a cluster in a slot of its own, so that
// a test of several buckets is one of several scripts there.
func bucketName(n int) []byte { return fmt.Appendf(nil, "{tenant-%d}:bucket", n) }

// of is a take of the n-th bucket, of ten tokens a day.
func of(n int, hits uint64) backend.Take {
	return backend.Take{Key: bucketName(n), Limit: tokens(10, day), Hits: hits}
}

func mode(m backend.Mode, t backend.Take) backend.Take {
	t.Mode = m
	return t
}

func overflow(o backend.Overflow, t backend.Take) backend.Take {
	t.Overflow = o
	return t
}

func give(n uint64, t backend.Take) backend.Take {
	t.Give = n
	return t
}

// day10 is the time in which one token of of comes back.
const day10 = day / 10

// full is the time until such a bucket is full.
func full(level float64) time.Duration { return time.Duration((10 - level) * float64(day10)) }

// paid and unpaid are the decisions of a take that can and one that cannot be paid.
func paid(hits uint64, level float64) backend.Decision {
	return backend.Decision{OK: true, Charged: hits, Level: level, Full: full(level)}
}

func unpaid(hits uint64, level float64) backend.Decision {
	return backend.Decision{Level: level, Wait: full(level) - full(min(10, float64(hits))), Full: full(level)}
}

// These take from several buckets at once.
var callTests = []test{
	{"all pay", func(b *bench) {
		b.call([]backend.Take{of(1, 3), of(2, 10), of(3, 1)}, paid(3, 7), paid(10, 0), paid(1, 9))
		b.call([]backend.Take{of(1, 7), of(3, 9)}, paid(7, 0), paid(9, 0))
	}},
	{"if one cannot pay none is charged (R38)", func(b *bench) {
		b.take(of(2, 9))
		b.call([]backend.Take{of(1, 3), of(2, 2), of(3, 1)}, paid(0, 10), unpaid(2, 1), paid(0, 10))
		b.call([]backend.Take{of(2, 2), of(1, 1)}, unpaid(2, 1), paid(0, 10))
		b.call([]backend.Take{of(1, 1), of(2, 2)}, paid(0, 10), unpaid(2, 1))
		b.call([]backend.Take{of(1, 10), of(2, 1), of(3, 10)}, paid(10, 0), paid(1, 0), paid(10, 0))
	}},
	{"each that could not pay alone says so", func(b *bench) {
		b.take(of(1, 10))
		b.take(of(3, 10))
		b.call([]backend.Take{of(1, 1), of(2, 1), of(3, 1), of(4, 11)},
			unpaid(1, 0), paid(0, 10), unpaid(1, 0), backend.Decision{Level: 10})
	}},
	{"a look denies too", func(b *bench) {
		b.take(of(1, 10))
		b.call([]backend.Take{of(1, 0), of(2, 4)}, unpaid(1, 0), paid(0, 10))
		b.call([]backend.Take{of(3, 0), of(2, 4)}, paid(0, 10), paid(4, 6))
	}},
	{"a shadow take pays if it can and denies nothing", func(b *bench) {
		b.call([]backend.Take{mode(backend.Shadow, of(1, 8)), of(2, 1)}, paid(8, 2), paid(1, 9))
		b.call([]backend.Take{mode(backend.Shadow, of(1, 3)), of(2, 1)}, unpaid(3, 2), paid(1, 8))
		b.call([]backend.Take{mode(backend.Shadow, of(1, 3))}, unpaid(3, 2))
		b.call([]backend.Take{mode(backend.Shadow, of(1, 2)), of(2, 9)}, paid(0, 2), unpaid(9, 8))
	}},
	{"quota takes deny if none can pay", func(b *bench) {
		first, second := mode(backend.Quota, of(1, 6)), mode(backend.Quota, of(2, 4))
		b.call([]backend.Take{first, second, of(3, 1)}, paid(6, 4), paid(4, 6), paid(1, 9))
		b.call([]backend.Take{first, second, of(3, 1)}, unpaid(6, 4), paid(4, 2), paid(1, 8))
		b.call([]backend.Take{first, second, of(3, 1)}, unpaid(6, 4), unpaid(4, 2), paid(0, 8))
		b.call([]backend.Take{first}, unpaid(6, 4))
		b.call([]backend.Take{first, of(3, 9)}, unpaid(6, 4), unpaid(9, 8))
		b.call([]backend.Take{mode(backend.Quota, of(2, 1)), of(3, 9)}, paid(0, 2), unpaid(9, 8))
	}},
	{"nothing is given in a denied call", func(b *bench) {
		b.take(of(1, 5), of(2, 5), of(3, 10))
		b.call([]backend.Take{give(2, of(1, 0)), give(1, of(2, 3)), of(3, 1)}, paid(0, 5), paid(0, 5), unpaid(1, 0))
		b.call([]backend.Take{give(2, of(1, 0)), give(1, of(2, 3)), of(4, 1)}, paid(0, 7), paid(3, 3), paid(1, 9))
		b.call([]backend.Take{give(4, mode(backend.Shadow, of(3, 1))), give(1, of(1, 0))}, unpaid(1, 0), paid(0, 8))
	}},
	{"what a denied call did not charge can be had at once", func(b *bench) {
		b.take(of(2, 10))
		for range 5 {
			b.take(of(1, 10), of(2, 1))
			b.take(mode(backend.Quota, of(2, 1)), of(1, 4))
		}
		b.call([]backend.Take{of(1, 10)}, paid(10, 0))
	}},
	{"a debt is taken beside a denial, and denies nobody", func(b *bench) {
		debt := overflow(backend.Debt, of(1, 8))
		b.take(of(2, 10))
		b.call([]backend.Take{debt, of(2, 1), of(3, 1)},
			backend.Decision{OK: true, Debt: true, Charged: 8, Level: 2, Full: full(2)}, unpaid(1, 0), paid(0, 10))
		b.call([]backend.Take{debt, of(3, 1)},
			backend.Decision{OK: true, Debt: true, Charged: 8, Level: -6, Full: full(-6)}, paid(1, 9))
		b.call([]backend.Take{debt, of(3, 1)},
			backend.Decision{Debt: true, Charged: 4, Level: -10, Wait: 11 * day10, Full: full(-10)}, paid(1, 8))
	}},
	{"a debt of a passing call gives back", func(b *bench) {
		b.call([]backend.Take{give(5, overflow(backend.Debt, of(1, 12))), of(2, 1)},
			backend.Decision{OK: true, Debt: true, Charged: 12, Level: 3, Full: full(3)}, paid(1, 9))
	}},
	{"a call of many takes", func(b *bench) {
		takes, want := make([]backend.Take, 60), make([]backend.Decision, 60)
		for i := range takes {
			takes[i], want[i] = of(i, 4), paid(4, 6)
		}
		b.call(takes, want...)
		takes[37].Hits = 7
		for i := range want {
			want[i] = paid(0, 6)
		}
		want[37] = unpaid(7, 6)
		b.call(takes, want...)
	}},
	{"a call of no takes", func(b *bench) { b.call(nil, []backend.Decision{}...) }},
}
