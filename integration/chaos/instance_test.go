//go:build integration

package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-rls/sluice/internal/proc"
)

// patience is how long a test waits for something that should come much sooner.
const patience = 20 * time.Second

// rules are those of all tests here. Of hot there are 60 a second for all instances.
const rules = `
domain: chaos
descriptors:
  - key: hot
    rate_limit: {unit: second, requests_per_unit: 60}
  - key: day
    rate_limit: {unit: day, requests_per_unit: 30}
  - key: ten
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: hundred
    rate_limit: {unit: day, requests_per_unit: 100}
  - key: window
    rate_limit: {unit: day, requests_per_unit: 5, algorithm: fixed_window}
  - key: plenty
    rate_limit: {unit: year, requests_per_unit: 1000000}
  - key: closed
    rate_limit: {unit: second, requests_per_unit: 60, on_failure: deny}
  - key: open
    rate_limit: {unit: second, requests_per_unit: 60, on_failure: allow}
`

// settings are environment variables of an instance.
type settings map[string]string

// instance is a running sluice.
type instance struct {
	*proc.Process
	t           *testing.T
	http, debug string
	rls         rlsv3.RateLimitServiceClient
}

// start starts an instance; its end is a kill.
func start(t *testing.T, env settings) *instance {
	t.Helper()
	s := launch(t, env, proc.Answers)
	conn, err := grpc.NewClient("passthrough:"+s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // nothing to lose
	return &instance{Process: s.process, t: t, http: s.http, debug: s.debug, rls: rlsv3.NewRateLimitServiceClient(conn)}
}

// launched is a process and where it listens.
type launched struct {
	process           *proc.Process
	grpc, http, debug string
}

// launch starts the binary, ready once ready has no complaint about the URL of its health;
// nil does not wait.
func launch(t *testing.T, env settings, ready func(url string) func(context.Context) error) launched {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	grpcPort, httpPort, debugPort := proc.FreePort(t), proc.FreePort(t), proc.FreePort(t)
	all := settings{
		"ON_FAILURE": "local",
		"GRPC_PORT":  strconv.Itoa(grpcPort), "PORT": strconv.Itoa(httpPort), "DEBUG_PORT": strconv.Itoa(debugPort),
	}
	maps.Copy(all, env)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	s := launched{grpc: local(grpcPort), http: "http://" + local(httpPort), debug: "http://" + local(debugPort)}
	o := proc.Options{Name: "sluice", Path: binary, Args: []string{"serve", "-rules", file}, Env: list}
	if ready != nil {
		o.Ready = ready(s.http + "/healthcheck")
	}
	s.process = proc.Start(t, o)
	t.Cleanup(func() { s.process.Signal(syscall.SIGKILL) })
	return s
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// get returns the status and the body of a page.
func (s *instance) get(path string) (int, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(context.WithoutCancel(s.t.Context()), http.MethodGet, s.http+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// metric is the sum of the series of a metric that have all labels.
func (s *instance) metric(name string, labels ...string) float64 {
	s.t.Helper()
	_, page := s.get("/metrics")
	var sum float64
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if series != name && !strings.HasPrefix(series, name+"{") ||
			slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) }) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// degraded reports whether any breaker is open.
func (s *instance) degraded() bool { return s.metric("ratelimit_breaker_state") > 0 }

// ready waits until the instance has reached Redis.
func (s *instance) ready() {
	s.t.Helper()
	eventually(s.t, "the instance is ready", func() error {
		if code, page := s.get("/readyz"); code != http.StatusOK {
			return fmt.Errorf("/readyz is %d: %s", code, page)
		}
		return nil
	})
}

// request is a call with one descriptor.
func request(key, value string) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "chaos", Descriptors: []*commonv3.RateLimitDescriptor{
		{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
	}}
}

// passes makes a call and reports whether it passed.
func (s *instance) passes(key, value string) bool {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	response, err := s.rls.ShouldRateLimit(ctx, request(key, value))
	if err != nil {
		s.t.Fatalf("ShouldRateLimit: %v", err)
	}
	return response.GetOverallCode() == rlsv3.RateLimitResponse_OK
}

// passed is how many of n calls pass.
func (s *instance) passed(key, value string, n int) (ok int) {
	s.t.Helper()
	for range n {
		if s.passes(key, value) {
			ok++
		}
	}
	return ok
}

// decides waits until Redis decides calls.
func (s *instance) decides() {
	s.t.Helper()
	n := 0
	eventually(s.t, "Redis decides", func() error {
		n++
		before := s.metric("ratelimit_decisions_total", `reason="within"`)
		s.passes("day", fmt.Sprint("decides", n))
		if s.metric("ratelimit_decisions_total", `reason="within"`) == before {
			return fmt.Errorf("call %d was decided without it", n)
		}
		return nil
	})
}

// eventually asks again and again until f has no complaint.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		case <-tick.C:
		}
	}
}
