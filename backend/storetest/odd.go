package storetest

import (
	"strings"

	"github.com/sluice-rls/sluice/backend"
)

// These are input that nobody hopes for.
var oddTests = []test{
	{"keys are opaque bytes, each a bucket of its own", func(b *bench) {
		keys := []string{
			"", "\x00", "\x00\x00", "a", "a\x00", "a\x00b", "A", "{", "}", "{}", "{}a", "{a}", "{a", "a}", "{{a}}",
			"\xff\xfe", "\xff", "é", "e\u0301", "a b", "a\r\nb", "a\r\nDEL a\r\n", "a_b", "a|b", "*", "a*", "%00", "'; flush",
			strings.Repeat("x", 50_000), strings.Repeat("x", 49_999) + "y", "rl1:", "rl1:a",
		}
		for pass := range 2 {
			for _, key := range keys {
				got := b.take(backend.Take{Key: []byte(key), Limit: tokens(2, day), Hits: 1})[0]
				if want := float64(1 - pass); !got.OK || got.Level != want {
					b.Errorf("take %d of %.40q: OK %v level %v, want OK and level %v", pass, key, got.OK, got.Level, want)
				}
			}
		}
	}},
	{"a store keeps no key of its caller", func(b *bench) {
		key := []byte("first")
		take := []backend.Take{{Key: key, Limit: tokens(2, day), Hits: 2}}
		b.take(take...)
		copy(key, "other")
		b.timeline("other", tokens(2, day), step{hits: 2, ok: true, level: 0})
		b.timeline("first", tokens(2, day), step{hits: 1, level: 0, wait: day / 2})
	}},
	{"hits of any size", func(b *bench) {
		limit := tokens(4_294_967_295, s)
		for _, hits := range []uint64{0, 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 53, 1<<53 + 1, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
			got := b.take(backend.Take{Key: []byte("k"), Limit: limit, Hits: hits})[0]
			if want := hits <= limit.Burst; got.OK != want || got.Level < 0 || got.Level > float64(limit.Burst) {
				b.Errorf("hits %d: OK %v level %v, want OK %v", hits, got.OK, got.Level, want)
			}
			b.clock(b.at + s)
		}
	}},
	{"what no store can decide is an error", func(b *bench) {
		f := func(limit backend.Limit, decisions int, want string) {
			b.Helper()
			err := b.store.Take(b.Context(), []backend.Take{{Key: []byte("k"), Limit: limit, Hits: 1}}, make([]backend.Decision, decisions))
			if err == nil || !strings.Contains(err.Error(), want) {
				b.Errorf("Take of %+v into %d decisions: %v, want an error with %q", limit, decisions, err, want)
			}
		}
		f(backend.Limit{Period: s, Burst: 1}, 1, "0")
		f(backend.Limit{Requests: 1, Burst: 1}, 1, "0")
		f(backend.Limit{Requests: 1, Period: s}, 1, "0")
		f(tokens(1, s), 0, "0 decisions for 1 takes")
		f(backend.Limit{Algorithm: backend.SlidingLog + 1, Requests: 1, Period: s, Burst: 1}, 1, "algorithm 5 is unknown")
	}},
}
