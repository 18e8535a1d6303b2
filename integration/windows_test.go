//go:build integration

package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/internal/proc"
)

// TestFleetOfWindows has four instances on one Redis and one hot key with a fixed window of a
// second. One of them is killed, and one stopped over the edges of two windows. More is asked for
// than there is; of no window more passes than its limit, and of the others nearly all.
func TestFleetOfWindows(t *testing.T) {
	const (
		instances = 4
		limit     = 1000
		lasts     = 6 * time.Second
	)
	redis, _ := proc.Redis(t)
	rules := t.TempDir()
	text := "domain: edge\ndescriptors:\n  - key: tenant\n    rate_limit: {unit: second, requests_per_unit: 1000, algorithm: fixed_window}\n"
	if err := os.WriteFile(filepath.Join(rules, "edge.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var fleet []*sluice
	for range instances {
		fleet = append(fleet, startSluice(t, rules, settings{
			"REDIS_URL": redis, "REDIS_BUDGET": "5s", "ON_FAILURE": "deny", "PREFETCH": "auto",
		}))
	}
	var l ledger
	start := time.Now().Truncate(time.Second).Add(time.Second) // by the wall clock, which is Redis' too
	<-time.After(time.Until(start))
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var driving sync.WaitGroup
	for _, s := range fleet {
		c := s.client(t)
		driving.Go(func() { l.drive(ctx, c, start, 2*limit/instances) })
	}
	for _, event := range []struct {
		at     time.Duration
		of     int
		signal syscall.Signal
	}{
		{2300 * time.Millisecond, 0, syscall.SIGKILL},
		{3700 * time.Millisecond, 1, syscall.SIGSTOP},
		{5200 * time.Millisecond, 1, syscall.SIGCONT},
	} {
		<-time.After(time.Until(start.Add(event.at)))
		fleet[event.of].Signal(event.signal)
	}
	driving.Wait()

	for window := time.Duration(0); window < lasts; window += time.Second {
		sure, maybe := 0, 0
		for _, a := range l.passed {
			begins, ends := a.sent >= window, a.received < window+time.Second
			if begins && ends {
				sure++
			}
			if a.received >= window && a.sent < window+time.Second {
				maybe++
			}
		}
		t.Logf("window at %v: %d passed within, %d maybe", window, sure, maybe)
		if sure > limit {
			t.Errorf("%d passed within the window at %v, want %d at most", sure, window, limit)
		}
		if maybe < limit*9/10 {
			t.Errorf("%d passed in the window at %v, want nearly all of %d", maybe, window, limit)
		}
	}
	web := newClient(t)
	for _, s := range fleet[1:] {
		if page := web.send("GET", s.url("/metrics")).body; !strings.Contains(page, `ratelimit_lease_tokens_total{event="granted"} `) ||
			strings.Contains(page, `ratelimit_lease_tokens_total{event="granted"} 0`) {
			t.Error("an instance had no lease: the test shows nothing")
		}
	}
}
