package storetest

import (
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// These charge what was used already: the cost of a response, after it.
var debtTests = []test{
	{"a debt is taken whole if one token is there", func(b *bench) {
		// 21 an hour, 10 for each response: three calls are answered, the fourth is not.
		limit := tokens(21, 3600*s)
		for i, level := range []float64{11, 1, -9} {
			b.timeline("k", limit, step{ok: true, level: 21 - 10*float64(i)})
			b.timeline("k", limit, step{hits: 10, overflow: backend.Debt, ok: true, level: level})
		}
		b.timeline("k", limit, step{level: -9, wait: 1714285715 * time.Microsecond})
		b.timeline("k", limit, step{hits: 1, level: -9, wait: 1714285715 * time.Microsecond})
	}},
	{"a debt without a token there is over the limit, and taken", func(b *bench) {
		b.timeline("k", tokens(10, 10*s),
			step{hits: 10, ok: true, level: 0},
			step{hits: 3, overflow: backend.Debt, level: -3, wait: 4 * s},
			step{hits: 3, overflow: backend.Debt, level: -6, wait: 7 * s},
			step{at: 6 * s, hits: 1, level: 0, wait: s},
			step{at: 7 * s, hits: 1, ok: true, level: 0},
		)
	}},
	{"a debt is never deeper than the capacity", func(b *bench) {
		limit := tokens(50_000, 60*s)
		debt := func(hits uint64) []backend.Take {
			return []backend.Take{{Key: []byte("k"), Limit: limit, Hits: hits, Overflow: backend.Debt}}
		}
		b.call(debt(100_000), backend.Decision{OK: true, Debt: true, Charged: 100_000, Level: -50_000, Full: 120 * s})
		b.call(debt(1), backend.Decision{Debt: true, Charged: 0, Level: -50_000, Wait: 60001200 * time.Microsecond, Full: 120 * s})
		b.clock(60 * s)
		b.call(debt(1<<64-1), backend.Decision{Debt: true, Charged: 50_000, Level: -50_000, Wait: 60001200 * time.Microsecond, Full: 120 * s})
	}},
	{"a lowering clamps a debt as well", func(b *bench) {
		b.timeline("k", tokens(1000, day), step{hits: 2000, overflow: backend.Debt, ok: true, level: -1000})
		b.timeline("k", tokens(10, day), step{level: -10, wait: 11 * day / 10})
	}},
	{"a refund pays a debt", func(b *bench) {
		b.timeline("k", tokens(10, day),
			step{hits: 15, overflow: backend.Debt, ok: true, level: -5},
			step{give: 6, ok: true, level: 1},
			step{hits: 1, ok: true, level: 0},
		)
	}},
	{"auto is a debt on a bucket that was looked at", func(b *bench) {
		b.timeline("fresh", tokens(5, 10*s),
			step{overflow: backend.Auto, ok: true, level: 5},
			step{hits: 8, overflow: backend.Auto, ok: true, level: -3},
		)
		b.timeline("used", tokens(5, 10*s),
			step{hits: 1, ok: true, level: 4},
			step{hits: 8, overflow: backend.Auto, level: 4, wait: 2 * s},
			step{overflow: backend.Auto, ok: true, level: 4},
			step{hits: 8, overflow: backend.Auto, ok: true, level: -4},
			step{hits: 8, level: -4, wait: 18 * s},
		)
	}},
	{"the mark of a look lives for a period, and a look renews it", func(b *bench) {
		limit := tokens(5, 10*s)
		b.timeline("k", limit,
			step{overflow: backend.Auto, ok: true, level: 5},
			step{at: 9 * s, overflow: backend.Auto, ok: true, level: 5},
			step{at: 18 * s, hits: 6, overflow: backend.Auto, ok: true, level: -1},
			step{at: 40 * s, hits: 6, overflow: backend.Auto, level: 5},
		)
		b.timeline("plain", limit,
			step{at: 40 * s, ok: true, level: 5},
			step{at: 40 * s, hits: 6, overflow: backend.Auto, level: 5},
		)
	}},
	{"an auto charge that fits is an ordinary one", func(b *bench) {
		b.timeline("k", tokens(5, 10*s),
			step{hits: 5, overflow: backend.Auto, ok: true, level: 0},
			step{hits: 1, overflow: backend.Auto, level: 0, wait: 2 * s},
		)
	}},
}
