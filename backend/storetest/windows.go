package storetest

import (
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// The algorithms that count in periods. Every test starts at noon, UTC, so that a window of
// a minute, an hour or half a day begins with it.

var leakyTests = []test{
	{"a leaky bucket keeps an even pace", func(b *bench) {
		limit := by(backend.LeakyBucket, burst(tokens(60, 60*s), 1))
		b.timeline("k", limit,
			step{hits: 1, ok: true, level: 0},
			step{hits: 1, level: 0, wait: s},
			step{at: 999 * time.Millisecond, hits: 1, level: 0.999, wait: time.Millisecond},
			step{at: s, hits: 1, ok: true, level: 0},
			step{at: 60 * s, hits: 1, ok: true, level: 0},
			step{at: 60 * s, hits: 1, level: 0, wait: s},
			step{at: 60 * s, give: 5, ok: true, level: 1},
		)
	}},
}

// A full bucket is full now, however large it is.
var largeTests = []test{
	{"a large bucket knows when it is full", func(b *bench) {
		for i, a := range []backend.Algorithm{backend.TokenBucket, backend.LeakyBucket, backend.FixedWindow, backend.SlidingWindow} {
			for j, n := range []uint64{1, 262_145, 300_000, 1_000_000, 4_294_967_295} {
				limit, key := by(a, tokens(n, day)), []byte{'l', byte(i), byte(j)}
				full := backend.Decision{OK: true, Level: float64(n)}
				b.call([]backend.Take{{Key: key, Limit: limit}}, full)
				b.take(backend.Take{Key: key, Limit: limit, Hits: 1})
				b.call([]backend.Take{{Key: key, Limit: limit, Give: 1}}, full)
				b.call([]backend.Take{{Key: key, Limit: limit}}, full)
			}
		}
	}},
}

var fixedTests = []test{
	{"a fixed window is that of the clock, and resets as a whole", func(b *bench) {
		limit := by(backend.FixedWindow, tokens(10, 60*s))
		b.timeline("k", limit,
			step{at: 20 * s, hits: 7, ok: true, level: 3},
			step{at: 20 * s, hits: 4, level: 3, wait: 40 * s},
			step{at: 20 * s, hits: 11, level: 3, wait: 40 * s},
			step{at: 30 * s, ok: true, level: 3},
			step{at: 59 * s, hits: 3, ok: true, level: 0},
			step{at: 59 * s, level: 0, wait: s},
			step{at: 60*s - time.Microsecond, hits: 1, level: 0, wait: time.Microsecond},
			step{at: 60 * s, hits: 10, ok: true, level: 0},
			step{at: 110 * s, hits: 1, level: 0, wait: 10 * s},
			step{at: 300 * s, ok: true, level: 10},
		)
		b.call([]backend.Take{{Key: []byte("k2"), Limit: limit, Hits: 1}},
			backend.Decision{OK: true, Charged: 1, Level: 9, Full: 60 * s})
		b.call([]backend.Take{{Key: []byte("k3"), Limit: limit}}, backend.Decision{OK: true, Level: 10})
	}},
	{"a denied call of a fixed window counts nothing", func(b *bench) {
		b.timeline("k", by(backend.FixedWindow, tokens(5, hour)),
			step{hits: 7, level: 5, wait: 0},
			step{hits: 3, ok: true, level: 2},
			step{hits: 3, level: 2, wait: hour},
			step{hits: 2, ok: true, level: 0},
		)
	}},
	{"refunds of a fixed window are of the running window", func(b *bench) {
		b.timeline("k", by(backend.FixedWindow, tokens(5, 60*s)),
			step{hits: 5, ok: true, level: 0},
			step{give: 2, ok: true, level: 2},
			step{give: 9, ok: true, level: 5},
			step{at: 59 * s, hits: 4, ok: true, level: 1},
			step{at: 61 * s, give: 4, ok: true, level: 5},
			step{at: 61 * s, hits: 5, ok: true, level: 0},
		)
	}},
	{"a changed limit of a fixed window counts what was taken", func(b *bench) {
		limit := func(n uint64, period time.Duration) backend.Limit {
			return by(backend.FixedWindow, tokens(n, period))
		}
		b.timeline("k", limit(10, 60*s), step{hits: 6, ok: true, level: 4})
		b.timeline("k", limit(8, 60*s), step{hits: 1, ok: true, level: 1})
		b.timeline("k", limit(20, 60*s), step{hits: 1, ok: true, level: 12})
		b.timeline("k", limit(5, 60*s), step{hits: 1, level: -3, wait: 60 * s})
		b.timeline("k", limit(20, hour), step{at: 30 * s, hits: 1, ok: true, level: 11})
		b.timeline("k", limit(5, 60*s), step{at: 60 * s, hits: 5, ok: true, level: 0})
	}},
	{"a debt of a fixed window ends with it", func(b *bench) {
		b.timeline("k", by(backend.FixedWindow, tokens(21, hour)),
			step{hits: 10, overflow: backend.Debt, ok: true, level: 11},
			step{hits: 10, overflow: backend.Debt, ok: true, level: 1},
			step{hits: 10, overflow: backend.Debt, ok: true, level: -9},
			step{level: -9, wait: hour},
			step{hits: 100, overflow: backend.Debt, level: -21, wait: hour},
			step{at: hour, ok: true, level: 21},
		)
	}},
}

var slidingTests = []test{
	{"a sliding window counts the part of the window before", func(b *bench) {
		limit := by(backend.SlidingWindow, tokens(10, 60*s))
		b.timeline("k", limit,
			step{at: 30 * s, hits: 10, ok: true, level: 0},
			step{at: 59 * s, hits: 1, level: 0, wait: 7 * s},
			step{at: 60 * s, hits: 1, level: 0, wait: 6 * s},
			step{at: 66 * s, hits: 1, ok: true, level: 0},
			step{at: 90 * s, ok: true, level: 4},
			step{at: 90 * s, hits: 5, level: 4, wait: 6 * s},
			step{at: 90 * s, hits: 4, ok: true, level: 0},
			// 5 tokens of this window count, in full to its end and less after it.
			step{at: 90 * s, hits: 10, level: 0, wait: 90 * s},
			step{at: 120 * s, hits: 5, ok: true, level: 0},
			step{at: 300 * s, ok: true, level: 10},
		)
		b.call([]backend.Take{{Key: []byte("k2"), Limit: limit, Hits: 4}},
			backend.Decision{OK: true, Charged: 4, Level: 6, Full: 120 * s})
		b.clock(390 * s)
		b.call([]backend.Take{{Key: []byte("k2"), Limit: limit}}, backend.Decision{OK: true, Level: 8, Full: 30 * s})
	}},
	{"refunds of a sliding window take back the last hits first", func(b *bench) {
		b.timeline("k", by(backend.SlidingWindow, tokens(10, 60*s)),
			step{hits: 10, ok: true, level: 0},
			step{give: 1, ok: true, level: 1},
			step{give: 99, ok: true, level: 10},
			step{hits: 8, ok: true, level: 2},
			step{at: 90 * s, hits: 2, ok: true, level: 4},
			step{at: 90 * s, give: 3, ok: true, level: 7},
			step{at: 90 * s, give: 99, ok: true, level: 10},
			step{at: 90 * s, hits: 10, ok: true, level: 0},
		)
	}},
	{"a changed limit of a sliding window counts what was taken", func(b *bench) {
		limit := func(n uint64) backend.Limit { return by(backend.SlidingWindow, tokens(n, 60*s)) }
		b.timeline("k", limit(10), step{hits: 6, ok: true, level: 4})
		b.timeline("k", limit(20), step{hits: 4, ok: true, level: 10})
		b.timeline("k", limit(8), step{hits: 1, level: -2, wait: 78 * s})
		b.timeline("k", limit(8), step{at: 78 * s, hits: 1, ok: true, level: 0})
	}},
	{"a debt of a sliding window", func(b *bench) {
		b.timeline("k", by(backend.SlidingWindow, tokens(10, 60*s)),
			step{hits: 15, overflow: backend.Debt, ok: true, level: -5},
			step{hits: 15, overflow: backend.Debt, level: -10, wait: 93 * s},
			step{at: 93 * s, ok: true, level: 1},
			step{at: 120 * s, ok: true, level: 10},
		)
	}},
}

var logTests = []test{
	{"a sliding log frees each token one period after it was taken", func(b *bench) {
		limit := by(backend.SlidingLog, tokens(5, 60*s))
		b.timeline("k", limit,
			step{at: 10 * s, hits: 2, ok: true, level: 3},
			step{at: 30 * s, hits: 3, ok: true, level: 0},
			step{at: 30 * s, hits: 1, level: 0, wait: 40 * s},
			step{at: 30 * s, hits: 3, level: 0, wait: 60 * s},
			step{at: 30 * s, hits: 6, level: 0, wait: 60 * s},
			step{at: 70*s - time.Microsecond, hits: 1, level: 0, wait: time.Microsecond},
			step{at: 70 * s, hits: 1, ok: true, level: 1},
			step{at: 71 * s, hits: 1, ok: true, level: 0},
			step{at: 71 * s, hits: 4, level: 0, wait: 59 * s},
			step{at: 90 * s, ok: true, level: 3},
			step{at: 500 * s, hits: 5, ok: true, level: 0},
		)
		b.call([]backend.Take{{Key: []byte("k2"), Limit: limit, Hits: 1}},
			backend.Decision{OK: true, Charged: 1, Level: 4, Full: 60 * s})
	}},
	{"two hits of a sliding log in one microsecond are two hits", func(b *bench) {
		b.timeline("k", by(backend.SlidingLog, tokens(3, 60*s)),
			step{hits: 1, ok: true, level: 2},
			step{hits: 1, ok: true, level: 1},
			step{hits: 1, ok: true, level: 0},
			step{hits: 1, level: 0, wait: 60 * s},
			step{at: 60 * s, hits: 3, ok: true, level: 0},
		)
	}},
	{"refunds of a sliding log take back the last hits first", func(b *bench) {
		b.timeline("k", by(backend.SlidingLog, tokens(5, 60*s)),
			step{hits: 2, ok: true, level: 3},
			step{at: s, hits: 1, ok: true, level: 2},
			step{at: 2 * s, hits: 2, ok: true, level: 0},
			step{at: 3 * s, give: 1, ok: true, level: 1},
			step{at: 3 * s, give: 2, ok: true, level: 3},
			step{at: 3 * s, hits: 4, level: 3, wait: 57 * s},
			step{at: 3 * s, give: 99, ok: true, level: 5},
		)
	}},
	{"a changed limit of a sliding log counts what was taken", func(b *bench) {
		limit := func(n uint64) backend.Limit { return by(backend.SlidingLog, tokens(n, 60*s)) }
		for i := range uint64(6) {
			b.timeline("k", limit(10), step{at: time.Duration(i) * s, hits: 1, ok: true, level: float64(9 - i)})
		}
		b.timeline("k", limit(20), step{at: 5 * s, hits: 1, ok: true, level: 13})
		b.timeline("k", limit(4), step{at: 5 * s, hits: 1, level: -3, wait: 58 * s})
		b.timeline("k", limit(4), step{at: 63 * s, hits: 1, ok: true, level: 0})
	}},
	{"a debt of a sliding log", func(b *bench) {
		b.timeline("k", by(backend.SlidingLog, tokens(2, 60*s)),
			step{hits: 1, ok: true, level: 1},
			step{at: s, hits: 3, overflow: backend.Debt, ok: true, level: -2},
			step{at: 2 * s, hits: 3, overflow: backend.Debt, level: -2, wait: 59 * s},
			step{at: 30 * s, level: -2, wait: 31 * s},
			step{at: 61 * s, ok: true, level: 2},
		)
	}},
	{"a long sliding log", func(b *bench) {
		limit, key := by(backend.SlidingLog, tokens(300, 300*s)), []byte("k")
		for i := range 900 {
			b.clock(time.Duration(i) * s)
			if got := b.take(backend.Take{Key: key, Limit: limit, Hits: 1})[0]; !got.OK || got.Level != float64(max(0, 299-i)) {
				b.Fatalf("hit %d, one a second: %+v", i, got)
			}
			if i < 299 {
				continue
			}
			for _, hits := range []uint64{1, 2, 77, 299, 300} {
				got := b.take(backend.Take{Key: key, Limit: limit, Hits: hits})[0]
				if want := time.Duration(hits) * s; got.OK || got.Wait != want {
					b.Fatalf("%d hits more at %v: %+v, want a wait of %v", hits, b.at, got, want)
				}
			}
		}
	}},
}

// edge takes all that it can get of a limit of ten a minute just before and just after the
// edge of two windows, and returns how much that was.
func edge(b *bench, a backend.Algorithm) uint64 {
	limit, taken := by(a, tokens(10, 60*s)), uint64(0)
	for _, at := range []time.Duration{59 * s, 59*s + 1, 60 * s, 61 * s} {
		b.clock(at)
		for b.take(backend.Take{Key: []byte("k"), Limit: limit, Hits: 1})[0].OK {
			taken++
		}
	}
	return taken
}

var edgeTests = []test{
	{"twice the limit passes at the edge of a fixed window", func(b *bench) {
		if got := edge(b, backend.FixedWindow); got != 20 {
			b.Errorf("%d of 10 a minute passed within two seconds, want 20", got)
		}
	}},
	{"no edge lets a sliding window pass more", func(b *bench) {
		if got := edge(b, backend.SlidingWindow); got != 10 {
			b.Errorf("%d of 10 a minute passed within two seconds, want 10", got)
		}
	}},
	{"no edge lets a sliding log pass more", func(b *bench) {
		if got := edge(b, backend.SlidingLog); got != 10 {
			b.Errorf("%d of 10 a minute passed within two seconds, want 10", got)
		}
	}},
	{"no edge lets a token bucket pass more", func(b *bench) {
		if got := edge(b, backend.TokenBucket); got != 10 {
			b.Errorf("%d of 10 a minute passed within two seconds, want 10", got)
		}
	}},
}

var mixedTests = []test{
	{"every algorithm waits as long as it says", func(b *bench) {
		for algorithm := range backend.SlidingLog + 1 {
			limit, key := by(algorithm, tokens(50, 30*s)), []byte{byte(algorithm)}
			for i := range 300 {
				b.clock(b.at + time.Duration(i*i%977)*time.Millisecond)
				ask := backend.Take{Key: key, Limit: limit, Hits: uint64(1 + i*i%17)}
				got := b.take(ask)[0]
				if got.OK != (got.Wait == 0) {
					b.Fatalf("%s: %+v", show([]backend.Take{ask}), got)
				}
				if i%20 > 0 || got.OK {
					continue
				}
				b.clock(b.at + got.Wait - time.Microsecond)
				early := b.take(ask)[0]
				b.clock(b.at + time.Microsecond)
				if due := b.take(ask)[0]; early.OK || !due.OK {
					b.Errorf("at %v %s: told to wait %v, then %+v a microsecond early and %+v in time",
						b.at, show([]backend.Take{ask}), got.Wait, early, due)
				}
			}
			full := b.take(backend.Take{Key: key, Limit: limit})[0].Full
			b.clock(b.at + full)
			if got := b.take(backend.Take{Key: key, Limit: limit})[0]; got.Remaining() != 50 || got.Full != 0 {
				b.Errorf("%s: %+v after %v, want a full bucket", show([]backend.Take{{Limit: limit}}), got, full)
			}
		}
	}},
	{"all or none whatever the algorithms", func(b *bench) {
		takes := make([]backend.Take, backend.SlidingLog+1)
		for i := range takes {
			takes[i] = of(i, 4)
			takes[i].Limit.Algorithm = backend.Algorithm(i)
		}
		check := func(want ...float64) {
			b.Helper()
			got := b.take(takes...)
			for i := range got {
				if got[i].OK != (takes[i].Hits <= 6) || got[i].Level != want[i] {
					b.Errorf("take %d of %s: %+v, want a level of %v", i, show(takes), got[i], want[i])
				}
			}
		}
		check(6, 6, 6, 6, 6)
		for i := range takes {
			takes[i].Hits = 7
			check(6, 6, 6, 6, 6)
			takes[i].Hits = 1
		}
		check(5, 5, 5, 5, 5)
	}},
	{"a clock that is set back, whatever the algorithm", func(b *bench) {
		for algorithm := range backend.SlidingLog + 1 {
			limit, key := by(algorithm, tokens(10, 10*s)), []byte{byte(algorithm)}
			f := func(at time.Duration, want bool) {
				b.Helper()
				b.clock(at)
				if got := b.take(backend.Take{Key: key, Limit: limit, Hits: 6})[0]; got.OK != want {
					b.Errorf("at %v %s: %+v, want OK %v", at, show([]backend.Take{{Limit: limit}}), got, want)
				}
			}
			f(4000*s, true)
			f(3999*s, false)
			f(4000*s, false)
			f(100*s, false) // an hour back: what was taken still counts,
			f(120*s, true)  // but for no longer than two periods
		}
	}},
	{"the mark of a look, whatever the algorithm", func(b *bench) {
		for algorithm := range backend.SlidingLog + 1 {
			take := backend.Take{Key: []byte{byte(algorithm)}, Limit: by(algorithm, tokens(5, 10*s)), Overflow: backend.Auto}
			f := func(at time.Duration, hits uint64, ok, debt bool, level float64) {
				b.Helper()
				b.clock(time.Duration(algorithm)*hour + at)
				take.Hits = hits
				if got := b.take(take)[0]; got.OK != ok || got.Debt != debt || got.Level != level {
					b.Errorf("at %v %s: %+v, want OK %v debt %v level %v", b.at, show([]backend.Take{take}), got, ok, debt, level)
				}
			}
			f(0, 0, true, false, 5)
			f(9*s, 8, true, true, -3)
			f(50*s, 8, false, false, 5)
			f(50*s, 2, true, false, 3)
			f(50*s, 0, true, false, 3)
			f(50*s, 4, true, true, -1)
		}
	}},
}
