//go:build integration

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-rls/sluice/internal/proc"
)

// admission is a call that passed. It was let through at some time between the two, in time
// since the start of the test.
type admission struct{ sent, received time.Duration }

// ledger is the admissions of all instances.
type ledger struct {
	mu     sync.Mutex
	passed []admission
	asked  int
}

// drive sends calls of one key to an instance, as they are due, until ctx is done: an
// instance that is slow or gone does not hold the next ones up.
func (l *ledger) drive(ctx context.Context, c rlsv3.RateLimitServiceClient, start time.Time, perSecond float64) {
	var calls sync.WaitGroup
	defer calls.Wait()
	due := time.NewTimer(0)
	defer due.Stop()
	for next := time.Now(); ; next = next.Add(time.Duration(rand.ExpFloat64() / perSecond * float64(time.Second))) {
		due.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		}
		calls.Go(func() {
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			sent := time.Since(start)
			response, err := c.ShouldRateLimit(call, edgeRequest(descriptor("tenant", "hot")))
			received := time.Since(start)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.asked++
			if err == nil && response.GetOverallCode() == rlsv3.RateLimitResponse_OK {
				l.passed = append(l.passed, admission{sent, received})
			}
		})
	}
}

// obeys checks stretches of time from some point on: those calls passed within one for sure
// that were sent after its begin and answered before its end.
func (l *ledger) obeys(t *testing.T, from time.Duration, rate, burst float64) {
	t.Helper()
	passed := slices.Clone(l.passed)
	slices.SortFunc(passed, func(a, b admission) int { return int(a.received - b.received) })
	worst := 0.0
	for i := 0; i < len(passed); i += max(len(passed)/400, 1) {
		begin, n := passed[i].sent, 0.0
		if begin < from {
			continue
		}
		for _, a := range passed {
			if a.sent >= begin {
				n++
				worst = max(worst, n-burst-rate*(a.received-begin).Seconds())
			}
		}
	}
	if worst > 0 {
		t.Errorf("%.1f more passed in some stretch of time than %v + %v per second", worst, burst, rate)
	}
}

// TestFleet has eight instances on one Redis and one hot key. One of them is killed, one
// stopped for two seconds, and the limit is halved; never do more calls pass than the bucket
// allows.
func TestFleet(t *testing.T) {
	const (
		instances = 8
		rate      = 1000
		demand    = 2.0
		changed   = 6 * time.Second
		lasts     = 9 * time.Second
	)
	redis, _ := proc.Redis(t)
	rules := t.TempDir()
	write := func(limit int) {
		text := fmt.Sprintf("domain: edge\ndescriptors:\n  - key: tenant\n    rate_limit: {unit: second, requests_per_unit: %d}\n", limit)
		name := filepath.Join(rules, "edge.yaml")
		if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	write(rate)
	var fleet []*sluice
	for range instances {
		fleet = append(fleet, startSluice(t, rules, settings{
			"REDIS_URL": redis, "REDIS_BUDGET": "5s", "ON_FAILURE": "deny", "PREFETCH": "auto",
		}))
	}
	var l ledger
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var driving sync.WaitGroup
	for _, s := range fleet {
		c := s.client(t)
		driving.Go(func() { l.drive(ctx, c, start, demand*rate/instances) })
	}
	for _, event := range []struct {
		at   time.Duration
		what func()
	}{
		{1500 * time.Millisecond, func() { fleet[0].Signal(syscall.SIGKILL) }},
		{2 * time.Second, func() { fleet[1].Signal(syscall.SIGSTOP) }},
		{4 * time.Second, func() { fleet[1].Signal(syscall.SIGCONT) }},
		{changed, func() { write(rate / 2) }},
	} {
		<-time.After(time.Until(start.Add(event.at)))
		event.what()
	}
	driving.Wait()

	l.obeys(t, 0, rate, rate)
	l.obeys(t, changed+1500*time.Millisecond, rate/2, rate/2)
	t.Logf("%d of %d calls passed", len(l.passed), l.asked)
	if n := len(l.passed); n < rate*int(changed.Seconds())*7/10 {
		t.Errorf("%d calls passed, want most of what the bucket had", n)
	}
	web := newClient(t)
	for _, s := range fleet[1:] {
		if page := web.send("GET", s.url("/metrics")).body; !strings.Contains(page, `ratelimit_lease_tokens_total{event="granted"} `) ||
			strings.Contains(page, `ratelimit_lease_tokens_total{event="granted"} 0`) {
			t.Error("an instance had no lease: the test shows nothing")
		}
	}
}
