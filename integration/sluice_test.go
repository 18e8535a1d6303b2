//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-rls/sluice/internal/proc"
)

// exampleRules is the folder of the rules that examples/envoy/envoy.yaml goes with.
var exampleRules = filepath.Join(root, "examples", "envoy", "rules")

// patience is how long a test waits for something that should come much sooner.
const patience = 10 * time.Second

// settings are environment variables of a sluice.
type settings map[string]string

// sluice is one running instance.
type sluice struct {
	*proc.Process
	grpc, http int
}

// startSluice starts the binary on free ports with a folder of rules.
func startSluice(t *testing.T, rules string, env settings) *sluice {
	t.Helper()
	return startSluiceOn(t, proc.FreePort(t), rules, env)
}

// startSluiceOn starts it with a gRPC port that is known to an Envoy already.
func startSluiceOn(t *testing.T, grpcPort int, rules string, env settings) *sluice {
	t.Helper()
	s := &sluice{grpc: grpcPort, http: proc.FreePort(t)}
	all := settings{
		"GRPC_PORT":  strconv.Itoa(s.grpc),
		"PORT":       strconv.Itoa(s.http),
		"DEBUG_PORT": strconv.Itoa(proc.FreePort(t)),
		// The default of 5ms is for a machine that has nothing better to do than to
		// answer, and a call that Redis answers too late is let through: counts would
		// not be exact on a machine that also compiles and runs a dozen Envoys.
		"REDIS_BUDGET": "200ms",
	}
	maps.Copy(all, env)
	s.Process = proc.Start(t, proc.Options{
		Name:  "sluice",
		Path:  binary,
		Args:  []string{"serve", "-rules", rules},
		Env:   all.list(),
		Ready: proc.Answers(s.url("/healthcheck")),
	})
	// Its orderly end takes seconds by design, and has tests of its own.
	t.Cleanup(func() { s.Signal(syscall.SIGKILL) })
	return s
}

// list returns the settings as the environment has them.
func (s settings) list() []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		env = append(env, name+"="+s[name])
	}
	return env
}

// url returns the URL of a path on the HTTP port.
func (s *sluice) url(path string) string { return local(s.http, path) }

// dial returns a connection to the gRPC port.
func (s *sluice) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:"+addr(s.grpc), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // nothing to lose
	return conn
}

// client returns a client of the rate limit service.
func (s *sluice) client(t *testing.T) rlsv3.RateLimitServiceClient {
	t.Helper()
	return rlsv3.NewRateLimitServiceClient(s.dial(t))
}

// addr returns the local host:port.
func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// local returns the URL of a path at a local port.
func local(port int, path string) string { return "http://" + addr(port) + path }

// descriptor returns a descriptor of keys and values in turn.
func descriptor(keysAndValues ...string) *commonv3.RateLimitDescriptor {
	d := &commonv3.RateLimitDescriptor{}
	for pair := range slices.Chunk(keysAndValues, 2) {
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: pair[0], Value: pair[1]})
	}
	return d
}

// edgeRequest returns a request to the domain of the example.
func edgeRequest(descriptors ...*commonv3.RateLimitDescriptor) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors}
}

// ask makes one call, which must not fail.
func ask(t *testing.T, c rlsv3.RateLimitServiceClient, r *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	response, err := c.ShouldRateLimit(ctx, r)
	if err != nil {
		t.Fatalf("ShouldRateLimit(%v): %v", r, err)
	}
	return response
}

// eventually asks again and again until f has no complaint, for a bounded time.
func eventually(t *testing.T, limit time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.NewTimer(limit)
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
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		case <-tick.C:
		}
	}
}

// within returns an error unless lo <= got <= hi.
func within[T int | int64 | float64](what string, got, lo, hi T) error {
	if got < lo || got > hi {
		return fmt.Errorf("%s = %v, want %v to %v", what, got, lo, hi)
	}
	return nil
}

// endedWell waits for the process' end and complains about any but exit code 0 in time.
func endedWell(p *proc.Process, limit time.Duration) error {
	select {
	case <-p.Done():
		return p.Wait()
	case <-time.After(limit):
		return errors.New("it still runs")
	}
}
