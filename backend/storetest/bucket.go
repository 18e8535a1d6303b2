package storetest

import (
	"time"

	"github.com/sluice-rls/sluice/backend"
)

var bucketTests = []test{
	{"a new bucket is full and drains", func(b *bench) {
		b.timeline("k", tokens(3, 60*s),
			step{hits: 1, ok: true, level: 2},
			step{hits: 1, ok: true, level: 1},
			step{hits: 1, ok: true, level: 0},
			step{hits: 1, level: 0, wait: 20 * s},
			step{at: 20 * s, hits: 1, ok: true, level: 0},
		)
	}},
	{"fractions are kept and the wait is true (R60)", func(b *bench) {
		b.timeline("k", tokens(5, 300*s),
			step{hits: 5, ok: true, level: 0},
			step{at: 59 * s, hits: 1, level: 59.0 / 60, wait: s},
			step{at: 60*s - time.Microsecond, hits: 1, level: 1, wait: time.Microsecond},
			step{at: 60 * s, hits: 1, ok: true, level: 0},
			step{at: 90 * s, hits: 1, level: 0.5, wait: 30 * s},
			step{at: 180 * s, hits: 2, ok: true, level: 0},
		)
	}},
	{"denied calls do not slow the refill down", func(b *bench) {
		limit := burst(tokens(1, year), 40_000)
		b.timeline("k", limit, step{hits: 1, ok: true, level: 39_999})
		// Far less comes back between two calls than a float64 of this size can add.
		for range 1000 {
			b.clock(b.at + 50*time.Microsecond)
			b.take(backend.Take{Key: []byte("k"), Limit: limit, Hits: 40_000})
		}
		for _, at := range []time.Duration{year - s, year} {
			b.clock(at)
			if got := b.take(backend.Take{Key: []byte("k"), Limit: limit, Hits: 40_000})[0]; got.OK != (at == year) {
				b.Errorf("at %v: %+v, want the last token a year after the drain", at, got)
			}
		}
	}},
	{"only the rate refills, not the end of a period (R56)", func(b *bench) {
		limit, passed := tokens(3, s), 0
		for range 101 {
			if b.take(backend.Take{Key: []byte("k"), Limit: limit, Hits: 1})[0].OK {
				passed++
			}
			b.clock(b.at + 100*time.Millisecond)
		}
		if passed != 33 { // 3, and 3 a second for ten seconds
			b.Errorf("%d calls passed in 10 s, want 33", passed)
		}
	}},
	{"a burst apart from the rate (R55)", func(b *bench) {
		b.timeline("k", burst(tokens(60, 60*s), 2),
			step{hits: 2, ok: true, level: 0},
			step{hits: 1, level: 0, wait: s},
			step{at: 10 * s, hits: 2, ok: true, level: 0},
			step{at: 10500 * time.Millisecond, hits: 1, level: 0.5, wait: 500 * time.Millisecond},
		)
		b.timeline("k2", burst(tokens(1, s), 100),
			step{at: 11 * s, hits: 100, ok: true, level: 0},
			step{at: 21 * s, hits: 10, ok: true, level: 0},
		)
	}},
	{"an idle bucket is no fuller than full (R62)", func(b *bench) {
		b.timeline("k", tokens(3, 45*s),
			step{hits: 3, ok: true, level: 0},
			step{at: 15 * s, hits: 1, ok: true, level: 0},
			step{at: 44 * s, hits: 3, level: 29.0 / 15, wait: 16 * s},
			step{at: 500 * s, hits: 3, ok: true, level: 0},
			step{at: 500 * s, hits: 1, level: 0, wait: 15 * s},
		)
	}},
	{"hits above one are taken together or not at all", func(b *bench) {
		b.timeline("k", tokens(10, 10*s),
			step{hits: 4, ok: true, level: 6},
			step{hits: 7, level: 6, wait: s},
			step{hits: 6, ok: true, level: 0},
			step{at: 3 * s, hits: 5, level: 3, wait: 2 * s},
			step{at: 3 * s, hits: 3, ok: true, level: 0},
		)
	}},
	{"a cost above the capacity waits for full and costs nothing", func(b *bench) {
		b.timeline("k", tokens(10, 10*s),
			step{hits: 11, level: 10},
			step{hits: 4, ok: true, level: 6},
			step{hits: 11, level: 6, wait: 4 * s},
			step{hits: 1 << 32, level: 6, wait: 4 * s},
			step{hits: 1<<64 - 1, level: 6, wait: 4 * s},
		)
	}},
	{"a look takes nothing and needs one token", func(b *bench) {
		b.timeline("k", tokens(2, 2*s),
			step{ok: true, level: 2},
			step{hits: 2, ok: true, level: 0},
			step{level: 0, wait: s},
			step{at: s, ok: true, level: 1},
			step{at: s, hits: 1, ok: true, level: 0},
			step{at: 1900 * time.Millisecond, level: 0.9, wait: 100 * time.Millisecond},
		)
	}},
	{"a refund gives back up to full and is always within the limit (R43, R44)", func(b *bench) {
		b.timeline("k", tokens(10, day),
			step{give: 5, ok: true, level: 10},
			step{hits: 10, ok: true, level: 0},
			step{give: 1, ok: true, level: 1},
			step{hits: 1, ok: true, level: 0},
			step{give: 1<<64 - 1, ok: true, level: 10},
			step{hits: 4, give: 3, ok: true, level: 9},
			step{hits: 11, give: 3, level: 9, wait: day / 10},
		)
	}},
	{"full is how long until full", func(b *bench) {
		limit := tokens(10, 10*s)
		b.call([]backend.Take{{Key: []byte("k"), Limit: limit, Hits: 4}},
			backend.Decision{OK: true, Charged: 4, Level: 6, Full: 4 * s})
		b.clock(1500 * time.Millisecond)
		b.call([]backend.Take{{Key: []byte("k"), Limit: limit}},
			backend.Decision{OK: true, Level: 7.5, Full: 2500 * time.Millisecond})
		b.clock(4 * s)
		b.call([]backend.Take{{Key: []byte("k"), Limit: limit}},
			backend.Decision{OK: true, Level: 10})
	}},
}
