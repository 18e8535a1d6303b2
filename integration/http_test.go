//go:build integration

package integration

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-rls/sluice/internal/proc"
)

// post sends a body to a path of the HTTP port and returns the answer.
func (s *sluice) post(t *testing.T, path, body string) answer {
	t.Helper()
	a, err := newClient(t).doWithBody(http.MethodPost, s.url(path), body, "content-type", "application/json")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestJSON(t *testing.T) {
	t.Parallel()
	s := startSluice(t, exampleRules, nil)
	f := func(body string, want int, code string) {
		t.Helper()
		a := s.post(t, "/json", body)
		if a.status != want {
			t.Errorf("status for %s = %d (%s), want %d", body, a.status, a.body, want)
		}
		var response struct{ OverallCode string }
		if code == "" {
			return
		}
		if err := json.Unmarshal([]byte(a.body), &response); err != nil || response.OverallCode != code {
			t.Errorf("body for %s = %s, want an overallCode of %s", body, a.body, code)
		}
	}
	f(`{"domain": "edge", "descriptors": [{"entries": [{"key": "api_key", "value": "json"}, {"key": "route", "value": "/"}]}]}`, 200, "OK")
	f(`{"domain": "edge", "descriptors": [{"entries": [{"key": "api_key", "value": "stolen-key"}]}]}`, 429, "OVER_LIMIT")
	f(`{"domain": "edge", "descriptors": [{"entries": [{"key": "api_key", "value": "json"}]}], "hitsAddend": 101}`, 429, "OVER_LIMIT")
	f(`{"domain": "edge", "descriptors": `, 400, "")
	f(`{"domain": "edge", "descriptrs": []}`, 400, "")
	if a := newClient(t).send("GET", s.url("/json")); a.status == http.StatusOK {
		t.Error("GET /json = 200, want a refusal")
	}
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	s := startSluice(t, exampleRules, nil)
	if a := newClient(t).send("GET", s.url("/healthcheck")); a.status != http.StatusOK || strings.TrimSpace(a.body) != "OK" {
		t.Errorf("/healthcheck = %d %q, want 200 OK", a.status, a.body)
	}
}

// Every descriptor of every call is counted, by domain, rule, decision and reason.
func TestMetrics(t *testing.T) {
	t.Parallel()
	redis, _ := proc.Redis(t)
	s := startSluice(t, exampleRules, settings{"REDIS_URL": redis})
	c := s.client(t)
	const decisions = "ratelimit_decisions_total"
	if got := s.metric(t, decisions); got != 0 {
		t.Errorf("%s = %v before the first call, want 0", decisions, got)
	}
	for range 25 {
		ask(t, c, edgeRequest(descriptor("user", "metrics"), descriptor("nobody", "knows")))
	}
	ask(t, c, edgeRequest(descriptor("api_key", "stolen-key")))
	f := func(want float64, labels ...string) {
		t.Helper()
		if got := s.metric(t, decisions, labels...); got != want {
			t.Errorf("%s%v = %v, want %v", decisions, labels, got, want)
		}
	}
	f(51, `domain="edge"`)
	f(25, `domain="edge"`, `reason="unmatched"`)
	f(1, `domain="edge"`, `reason="blocked"`)
	if limited := s.metric(t, decisions, `domain="edge"`, `reason="exhausted"`); limited == 0 || limited > 15 {
		t.Errorf("%s for reason exhausted = %v, want 1 to 15 of 25 calls with 10 tokens", decisions, limited)
	}
}

// metric returns the sum of the series of a metric that have all these labels, written
// as `name="value"`.
func (s *sluice) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	a := newClient(t).send("GET", s.url("/metrics"))
	if a.status != http.StatusOK {
		t.Fatalf("status of /metrics = %d, want 200", a.status)
	}
	var sum float64
series:
	for lines := bufio.NewScanner(strings.NewReader(a.body)); lines.Scan(); {
		series, value := cutLast(lines.Text(), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue series
			}
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %q: %v", lines.Text(), err)
		}
		sum += n
	}
	return sum
}

// cutLast is strings.Cut around the last separator.
func cutLast(s, sep string) (before, after string) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i+len(sep):]
}
