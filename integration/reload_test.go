//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

const (
	ordersRule = "{ unit: second, requests_per_unit: 100, burst: 200 }"
	banRule    = "{ unit: second, requests_per_unit: 0 }"
)

// reloadTime is how soon an edit acts.
const reloadTime = time.Second

// One edit, while the process runs and Envoy asks it.
func TestReloadThroughEnvoy(t *testing.T) {
	t.Parallel()
	rules := copyRules(t)
	e, _ := startExample(t, 1, rules, nil)
	c := newClient(t)
	c.drain(250, "POST", e.url("/orders"), "x-api-key", "shop-a").obeys(t, 200, 100)

	editRules(t, rules, ordersRule, "{ unit: hour, requests_per_unit: 3, burst: 2 }")
	eventually(t, reloadTime, "the new limit", func() error {
		a := c.send("POST", e.url("/orders"), "x-api-key", "shop-a")
		if !strings.HasPrefix(a.header.Get("x-ratelimit-limit"), "3, 3;w=3600,") {
			return fmt.Errorf("answer = %q", a.limits())
		}
		return nil
	})
	// The bucket keeps its level, cut to the new size: at most 2 pass from now on, and
	// one comes back in 20 minutes.
	all := c.drain(20, "POST", e.url("/orders"), "x-api-key", "shop-a")
	if all.passed > 2 || all.limited == 0 {
		t.Errorf("%d passed and %d were limited by the new limit, want at most 2 to pass", all.passed, all.limited)
	}
	mustBeWithin(t, all.denial, "retry-after", 1, 1200)
	e.mustNotFail(t)
}

// A mistake changes nothing, and its mend acts.
func TestReloadOfBrokenRules(t *testing.T) {
	t.Parallel()
	rules := copyRules(t)
	s := startSluice(t, rules, nil)
	c := s.client(t)
	orders := edgeRequest(descriptor("api_key", "shop-a", "route", "POST /orders"))
	if got := limitOf(ask(t, c, orders)); got != "100/SECOND" {
		t.Fatalf("limit = %s, want 100/SECOND", got)
	}
	editRules(t, rules, ordersRule, "{ unit: fortnight, requests_per_unit: 7 }")
	line := s.WaitLog(`edge\.yaml:\d+:\d+: .*fortnight`)
	if got := limitOf(ask(t, c, orders)); got != "100/SECOND" {
		t.Errorf("limit after a mistake = %s, want 100/SECOND as before; the log said %s", got, line)
	}
	editRules(t, rules, "fortnight", "day")
	waitForLimit(t, c, orders, "7/DAY")
}

// Editors and Kubernetes replace files in their ways, and an operator can ask for a look.
func TestReloadBySignal(t *testing.T) {
	t.Parallel()
	rules := copyRules(t)
	// The folder has only a link, so an edit of the file behind it is no event there.
	file := filepath.Join(t.TempDir(), "elsewhere.yaml")
	if err := os.Rename(filepath.Join(rules, "edge.yaml"), file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, filepath.Join(rules, "edge.yaml")); err != nil {
		t.Fatal(err)
	}
	s := startSluice(t, rules, nil)
	c := s.client(t)
	ban := edgeRequest(descriptor("api_key", "stolen-key"))
	if got := limitOf(ask(t, c, ban)); got != "0/SECOND" {
		t.Fatalf("limit = %s, want 0/SECOND", got)
	}
	editRules(t, rules, banRule, "{ unit: minute, requests_per_unit: 1 }")
	s.Signal(syscall.SIGHUP)
	waitForLimit(t, c, ban, "1/MINUTE")
	// With nothing changed it is a look and no more.
	s.Signal(syscall.SIGHUP)
	if got := limitOf(ask(t, c, ban)); got != "1/MINUTE" {
		t.Errorf("limit after another signal = %s, want 1/MINUTE", got)
	}
}

// waitForLimit waits until the rules that give this limit are in force.
func waitForLimit(t *testing.T, c rlsv3.RateLimitServiceClient, r *rlsv3.RateLimitRequest, want string) {
	t.Helper()
	eventually(t, reloadTime, "a limit of "+want, func() error {
		if got := limitOf(ask(t, c, r)); got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// limitOf returns the limit of the only status, such as "100/SECOND"; "none" if no rule
// applied.
func limitOf(response *rlsv3.RateLimitResponse) string {
	limit := response.GetStatuses()[0].GetCurrentLimit()
	if limit == nil {
		return "none"
	}
	return fmt.Sprintf("%d/%v", limit.GetRequestsPerUnit(), limit.GetUnit())
}
