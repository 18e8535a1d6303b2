package storetest

import (
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// These change the limit of a live bucket.
var limitTests = []test{
	{"a raise gives the difference at once, and once", func(b *bench) {
		b.timeline("k", tokens(10, day), step{hits: 7, ok: true, level: 3})
		b.timeline("k", tokens(25, day),
			step{level: 18, ok: true},
			step{hits: 18, ok: true, level: 0},
			step{hits: 1, level: 0, wait: 3456 * s},
		)
	}},
	{"a lowering clamps, and the past is no debt", func(b *bench) {
		b.timeline("k", tokens(100, day), step{hits: 10, ok: true, level: 90})
		b.timeline("k", tokens(5, day),
			step{hits: 6, level: 5},
			step{hits: 5, ok: true, level: 0},
		)
		b.timeline("k2", tokens(100, day), step{hits: 98, ok: true, level: 2})
		b.timeline("k2", tokens(5, day), step{hits: 2, ok: true, level: 0})
	}},
	{"old and new rules side by side make no tokens", func(b *bench) {
		small, large := tokens(10, day), tokens(1000, day)
		b.timeline("k", small, step{hits: 10, ok: true, level: 0})
		b.timeline("k", large, step{hits: 990, ok: true, level: 0})
		for range 20 {
			b.timeline("k", small, step{hits: 1, level: 0, wait: day / 10})
			b.timeline("k", large, step{hits: 1, level: 0, wait: day / 1000})
		}
		b.timeline("k2", large, step{hits: 1, ok: true, level: 999})
		for level := 9.0; level > 0; level-- {
			b.timeline("k2", small, step{hits: 1, ok: true, level: level})
			b.timeline("k2", large, step{ok: true, level: level})
		}
		b.timeline("k2", small, step{hits: 1, ok: true, level: 0})
		b.timeline("k2", large, step{hits: 1, level: 0, wait: day / 1000})
	}},
	{"a change is kept though only looks and denials saw it", func(b *bench) {
		look := step{ok: true}
		b.timeline("k", tokens(10, day), step{hits: 10, ok: true, level: 0})
		look.level = 10
		b.timeline("k", tokens(20, day), look)
		b.timeline("k", tokens(10, day), look)
		b.timeline("k", tokens(20, day), look)

		b.timeline("k2", tokens(10, day), step{hits: 4, ok: true, level: 6})
		b.timeline("k2", tokens(20, day), step{hits: 17, level: 16, wait: day / 20})
		b.timeline("k2", tokens(5, day), step{hits: 1, ok: true, level: 4})
		look.level = 4
		b.timeline("k2", tokens(20, day), look)

		b.timeline("k3", tokens(20, day), step{hits: 1, ok: true, level: 19})
		look.level = 5
		b.timeline("k3", tokens(5, day), look)
		b.timeline("k3", tokens(20, day), look)
	}},
	{"another rate acts at once", func(b *bench) {
		b.timeline("k", burst(tokens(1, s), 10), step{hits: 10, ok: true, level: 0})
		b.timeline("k", burst(tokens(10, s), 10), step{hits: 1, level: 0, wait: 100 * time.Millisecond})
		b.timeline("k", burst(tokens(1, 100*s), 10), step{hits: 1, level: 0, wait: 100 * s})
	}},
	{"a slower rate keeps an empty bucket", func(b *bench) {
		b.timeline("k", tokens(10, s), step{hits: 10, ok: true, level: 0})
		b.timeline("k", tokens(10, day),
			step{hits: 1, level: 0, wait: day / 10},
			step{at: 10 * s, hits: 1, level: 10.0 / 8640, wait: day/10 - 10*s},
		)
	}},
	{"years and billions (1/year, 4e9)", func(b *bench) {
		b.timeline("year", tokens(1, year),
			step{hits: 1, ok: true, level: 0},
			step{at: year - s, hits: 1, level: 1 - 1/31536000.0, wait: 984232 * time.Microsecond},
			step{at: year, hits: 1, ok: true, level: 0},
		)
		const billions = 4_000_000_000
		b.timeline("billions", tokens(billions, 4000*s),
			step{at: year, hits: billions, ok: true, level: 0},
			step{at: year + s, hits: 1_000_001, level: 1_000_000, wait: time.Microsecond},
			step{at: year + s, hits: 1_000_000, ok: true, level: 0},
			step{at: year + 4001*s, hits: billions, ok: true, level: 0},
		)
		b.call([]backend.Take{{Key: []byte("both"), Limit: burst(tokens(1, year), billions), Hits: billions}},
			backend.Decision{OK: true, Charged: billions, Full: backend.MaxIdle})
		b.call([]backend.Take{{Key: []byte("both"), Limit: burst(tokens(1, year), billions), Hits: billions}},
			backend.Decision{Wait: backend.MaxIdle, Full: backend.MaxIdle})
	}},
	{"the told wait is enough, whatever the size", func(b *bench) {
		for i, limit := range []backend.Limit{
			tokens(3, s), tokens(7, 60*s), tokens(1_000_000, s), burst(tokens(999_983, s), 4_294_967_295),
			burst(tokens(13, year), 7), burst(tokens(4_294_967_295, 3600*s), 4_294_967_291),
		} {
			key := []byte{byte(i)}
			b.take(backend.Take{Key: key, Limit: limit, Hits: limit.Burst})
			for _, part := range []uint64{7, 5, 3, 2, 1} {
				ask := backend.Take{Key: key, Limit: limit, Hits: max(1, limit.Burst/part)}
				told := b.take(ask)[0]
				b.clock(b.at + told.Wait)
				if got := b.take(ask)[0]; !got.OK {
					b.Errorf("%s: denied after the wait of %v that it told: %+v", show([]backend.Take{ask}), told.Wait, got)
				}
			}
		}
	}},
	{"a clock that is set back fills nothing twice (R58)", func(b *bench) {
		b.timeline("k", tokens(10, 10*s),
			step{at: 100 * s, hits: 10, ok: true, level: 0},
			step{at: 99 * s, hits: 1, level: 0, wait: 2 * s},
			step{at: 100 * s, hits: 1, level: 0, wait: s},
			step{at: 101 * s, hits: 1, ok: true, level: 0},
			step{at: 100 * s, hits: 1, level: 0, wait: 2 * s},
			step{at: 102 * s, hits: 1, ok: true, level: 0},
			step{at: 102 * s, hits: 1, level: 0, wait: s},
		)
	}},
	{"a clock that is set back by an hour denies nobody for an hour", func(b *bench) {
		b.timeline("k", tokens(10, 10*s),
			step{at: 3700 * s, hits: 9, ok: true, level: 1},
			step{at: 100 * s, hits: 1, ok: true, level: 0},
			step{at: 101 * s, hits: 1, ok: true, level: 0},
			step{at: 101 * s, hits: 1, level: 0, wait: s},
		)
	}},
}
