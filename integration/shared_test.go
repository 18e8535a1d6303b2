//go:build integration

package integration

import (
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-rls/sluice/internal/proc"
)

// R87: two instances on one Redis are one limit.
// Two instances that share a Redis, asked at the same time, let no more through than one
// would.
func TestSharedBuckets(t *testing.T) {
	t.Parallel()
	redis, _ := proc.Redis(t)
	env := settings{"REDIS_URL": redis}
	a, b := startSluice(t, exampleRules, env).client(t), startSluice(t, exampleRules, env).client(t)
	request := edgeRequest(descriptor("api_key", "shop-a", "route", "POST /orders"))

	var mu sync.Mutex
	var all tally
	var wg sync.WaitGroup
	start := time.Now()
	for _, c := range []rlsv3.RateLimitServiceClient{a, b, a, b} {
		wg.Go(func() {
			passed := 0
			for range 150 {
				response, err := c.ShouldRateLimit(t.Context(), request)
				if err != nil {
					t.Error(err)
					return
				}
				if response.GetOverallCode() == rlsv3.RateLimitResponse_OK {
					passed++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.passed += passed
			all.limited += 150 - passed
		})
	}
	wg.Wait()
	all.elapsed = time.Since(start)
	// The last few may lie with the one instance while the other is asked for them.
	if most := 200 + 100*all.elapsed.Seconds(); all.passed < 190 || float64(all.passed) > most || all.limited == 0 {
		t.Errorf("in %v %d passed and %d were limited, want about 200 and at most %.1f to pass, the others limited",
			all.elapsed, all.passed, all.limited, most)
	}
}

// Without Redis each instance has buckets of its own.
func TestBucketsOfTheirOwn(t *testing.T) {
	t.Parallel()
	request := edgeRequest(descriptor("api_key", "own", "meter", "report-cost"))
	request.HitsAddend = 60
	for range 2 {
		response := ask(t, startSluice(t, exampleRules, nil).client(t), request)
		if got := response.GetStatuses()[0].GetLimitRemaining(); got != 40 {
			t.Errorf("remaining = %d, want 40 of 100 on each instance", got)
		}
	}
}
