package storetest

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-rls/sluice/backend"
)

// parallel lets a thousand callers at a bucket of a hundred tokens, alone and together
// with another bucket that has enough.
func parallel(t *testing.T, open Open, algorithm backend.Algorithm) {
	t.Helper()
	for _, buckets := range []int{1, 2} {
		store, _ := open(t)
		takes := []backend.Take{{Key: bucketName(1), Limit: by(algorithm, tokens(100, day)), Hits: 1}}
		if buckets == 2 {
			takes = append(takes, backend.Take{Key: bucketName(2), Limit: by(algorithm, tokens(100_000, day)), Hits: 1})
		}
		if passed := Storm(t, store, takes, 1000); passed != 100 {
			t.Errorf("%d of 1000 calls of %d buckets passed, want 100", passed, buckets)
		}
		if buckets == 1 {
			continue
		}
		after := make([]backend.Decision, 2)
		if err := store.Take(t.Context(), takes, after); err != nil {
			t.Fatal(err)
		}
		if after[1].Level != 99_900 {
			t.Errorf("level %v of the second bucket, want 99900: denied calls were charged", after[1].Level)
		}
	}
}

// Storm makes a number of equal calls in parallel, and returns how many of them passed.
func Storm(t *testing.T, store backend.Store, takes []backend.Take, calls int) int {
	t.Helper()
	var passed atomic.Int64
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			for range calls / 50 {
				got := make([]backend.Decision, len(takes))
				if err := store.Take(t.Context(), takes, got); err != nil {
					t.Error(err)
					return
				}
				if !backend.Denied(takes, got) {
					passed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	return int(passed.Load())
}
