//go:build integration && long

package integration

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-rls/sluice/internal/proc"
)

// TestManyKeys measures, for ten seconds on a machine that has nothing else to do. It calls one instance 5,000 times a second, as the calls are due, with 100,000
// keys some of which are far more popular than others.
func TestManyKeys(t *testing.T) {
	const perSecond, keys, lasts = 5000, 100_000, 10 * time.Second
	redis, _ := proc.Redis(t)
	rules := t.TempDir()
	text := "domain: edge\ndescriptors:\n  - key: tenant\n    rate_limit: {unit: second, requests_per_unit: 1000}\n"
	if err := os.WriteFile(filepath.Join(rules, "edge.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startSluice(t, rules, settings{"REDIS_URL": redis, "PREFETCH": "auto"})
	var clients []rlsv3.RateLimitServiceClient
	for range 8 {
		clients = append(clients, s.client(t))
	}
	popular := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, keys-1)
	var mu sync.Mutex
	var took []time.Duration
	var calls sync.WaitGroup
	start := time.Now()
	n := 0
	for due := start; due.Before(start.Add(lasts)); due = due.Add(time.Duration(rand.ExpFloat64() / perSecond * float64(time.Second))) {
		<-time.After(time.Until(due))
		request := edgeRequest(descriptor("tenant", strconv.FormatUint(popular.Uint64(), 10)))
		c := clients[n%len(clients)]
		n++
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := c.ShouldRateLimit(ctx, request); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(due))
		})
	}
	calls.Wait()
	slices.Sort(took)
	page := newClient(t).send("GET", s.url("/metrics")).body
	scripts := 0.0
	if found := regexp.MustCompile(`ratelimit_redis_duration_seconds_count\{op="take"\} (\S+)`).FindStringSubmatch(page); found != nil {
		scripts, _ = strconv.ParseFloat(found[1], 64)
	}
	t.Logf("%d calls: p50 %v, p99 %v from when they were due; %.3f scripts a call", len(took), took[len(took)/2], took[len(took)*99/100], scripts/float64(len(took)))
	if scripts == 0 || scripts > 0.6*float64(len(took)) {
		t.Errorf("%v scripts in Redis for %d calls", scripts, len(took))
	}
}
