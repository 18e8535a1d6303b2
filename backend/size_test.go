package backend_test

import (
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// What a store may count on to bound its memory: a log grows with its tokens, 24 bytes for
// each and room to grow, and no other bucket does.
func TestExtra(t *testing.T) {
	for _, algorithm := range []backend.Algorithm{
		backend.TokenBucket, backend.LeakyBucket, backend.FixedWindow, backend.SlidingWindow, backend.SlidingLog,
	} {
		var b backend.Bucket
		if n := b.Extra(); n != 0 {
			t.Errorf("algorithm %d: Extra() = %d of a bucket that nobody has touched", algorithm, n)
		}
		takes := []backend.Take{{Limit: backend.Limit{Algorithm: algorithm, Requests: 1000, Period: time.Hour, Burst: 1000}, Hits: 1}}
		for i := range 1000 {
			backend.Settle(takes, []*backend.Bucket{&b}, int64(1e15)+int64(i), make([]backend.Decision, 1))
		}
		least, most := 0, 100
		if algorithm == backend.SlidingLog {
			least, most = 1000*24, 2*1000*24
		}
		if n := b.Extra(); n < least || n > most {
			t.Errorf("algorithm %d: Extra() = %d after a thousand tokens, want %d to %d", algorithm, n, least, most)
		}
	}
}

// A client that has used half of its limit up is worth more than one that came later and took
// one token, whatever the algorithm: who is dropped starts afresh.
func TestWorth(t *testing.T) {
	const start, later = int64(1e15), int64(1e15) + 60e6
	for _, algorithm := range []backend.Algorithm{
		backend.TokenBucket, backend.LeakyBucket, backend.FixedWindow, backend.SlidingWindow, backend.SlidingLog,
	} {
		bucket := func(hits uint64, at int64) *backend.Bucket {
			b := &backend.Bucket{}
			takes := []backend.Take{{Limit: backend.Limit{Algorithm: algorithm, Requests: 100, Period: 24 * time.Hour, Burst: 100}, Hits: hits}}
			backend.Settle(takes, []*backend.Bucket{b}, at, make([]backend.Decision, 1))
			return b
		}
		half, one, all := bucket(50, start).Worth(later), bucket(1, later).Worth(later), bucket(100, start).Worth(later)
		if one <= 0 || half <= one || all <= half {
			t.Errorf("algorithm %d: one token is worth %v, half of all %v and all %v, want more and more", algorithm, one, half, all)
		}
		if n := new(backend.Bucket).Worth(0); n != 0 {
			t.Errorf("algorithm %d: a bucket that nobody has touched is worth %v", algorithm, n)
		}
	}
}
