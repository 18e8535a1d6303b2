//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/internal/proc"
)

// clientsOfEnvoy are the two gRPC clients that Envoy has.
var clientsOfEnvoy = []string{"envoy_grpc", "google_grpc"}

// interop is an edge with one replica whose Redis can be made to hang.
type interop struct {
	*edge
	sluice *sluice
	redis  *proc.Proxy
	envoy  bool // the client is Envoy's own, which has statistics
}

// filterTimeout is how long the filter waits for an answer: the deadline of a call.
const filterTimeout = 3 * time.Second

func startInterop(t *testing.T, engine, client string) interop {
	t.Helper()
	server, _ := proc.Redis(t)
	i := interop{redis: proc.NewProxy(t, server), envoy: client == "envoy_grpc"}
	env := settings{"GRPC_ENGINE": engine, "REDIS_URL": i.redis.Addr(), "REDIS_BUDGET": "10s", "PREFETCH": "off"}
	edits := []string{
		"              timeout: 0.25s\n              # No answer", fmt.Sprintf("              timeout: %v\n              # No answer", filterTimeout),
		// Envoy takes headers of 60 KiB unless told otherwise, as the upstream does, which
		// need not see this one.
		"          stat_prefix: edge\n", "          stat_prefix: edge\n          max_request_headers_kb: 8192\n",
		"            name: edge\n            virtual_hosts:", "            name: edge\n            request_headers_to_remove: [x-api-key]\n            virtual_hosts:",
	}
	if i.envoy {
		i.edge = startEdge(t, edits...)
		i.sluice = startSluiceOn(t, i.replicas[0], exampleRules, env)
		i.waitHealthy(1)
		return i
	}
	i.sluice = startSluice(t, exampleRules, env)
	i.edge = startEdge(t, append(edits, "envoy_grpc: { cluster_name: ratelimit }",
		fmt.Sprintf("google_grpc: { target_uri: %q, stat_prefix: rls }", addr(i.sluice.grpc)))...)
	return i
}

// Either engine with either client of Envoy's, on the same few connections: bytes that are
// no text, requests up to the largest, callers that leave, deadlines.
func TestInteropWithEnvoy(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for _, client := range clientsOfEnvoy {
			t.Run(engine+" "+client, func(t *testing.T) {
				t.Parallel()
				i := startInterop(t, engine, client)
				newClient(t).drain(60, "GET", i.url("/search?user=%ff%fe"), "x-api-key", "opaque").obeys(t, 10, 5)
				i.testLarge(t)
				i.testHanging(t)
				newClient(t).drain(60, "GET", i.url("/search?user=%ff%fd"), "x-api-key", "later").obeys(t, 10, 5)
				if i.envoy {
					if n := i.Stat("cluster.ratelimit.upstream_cx_destroy_local") + i.Stat("cluster.ratelimit.upstream_cx_destroy_remote"); n != 0 {
						t.Errorf("%d connections have ended, want none", n)
					}
				}
			})
		}
	}
}

// testLarge sends requests of nearly and of more than 4 MiB, which are two descriptors with
// one header each.
func (i interop) testLarge(t *testing.T) {
	t.Helper()
	const most = 4 << 20
	c := newClient(t)
	send := func(size int) string {
		t.Helper()
		a := c.send("GET", i.url("/"), "x-api-key", strings.Repeat("k", (size-100)/2))
		return a.limits()
	}
	if got, want := send(most-2000), "200 | 10, 10;w=1, 50;w=1 | 19 | 1 | - | -"; got != want {
		t.Errorf("a request of nearly 4 MiB: %q, want %q", got, want)
	}
	i.mustNotFail(t)
	// Nobody can decide on it, so the filter does.
	if got, want := send(most+2000), "200 | - | - | - | - | -"; got != want {
		t.Errorf("a request of more than 4 MiB: %q, want %q", got, want)
	}
	if n := i.calls()["error"]; n != 1 {
		t.Errorf("Envoy counts %d errors, want 1", n)
	}
	if got, want := send(most-2000), "200 | 10, 10;w=1, 50;w=1 |"; !strings.HasPrefix(got, want) {
		t.Errorf("a request after it: %q, want %q", got, want)
	}
}

// testHanging lets Redis hang: callers leave and are not waited for, and one that stays is
// answered within its deadline.
func (i interop) testHanging(t *testing.T) {
	t.Helper()
	errors := i.calls()["error"]
	i.redis.Stall()
	ctx, leave := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for n := range 8 {
		c := newClient(t)
		callers.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, i.url("/"), nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("x-api-key", fmt.Sprintf("leaving-%d", n))
			// It may be answered without Redis: the service finds out that Redis hangs.
			if resp, err := c.http.Do(r); err == nil {
				resp.Body.Close() //nolint:errcheck // nobody reads it
				if resp.StatusCode != http.StatusOK {
					t.Errorf("status %d while Redis hangs", resp.StatusCode)
				}
			}
		})
	}
	eventually(t, filterTimeout/2, "a call that waits for Redis", func() error {
		return within("commands in flight", i.sluice.metric(t, "ratelimit_redis_in_flight"), 1, 8)
	})
	leave()
	callers.Wait()
	if i.envoy {
		// Not at their deadline: the streams are reset when their callers leave.
		eventually(t, filterTimeout/2, "the end of the calls", func() error {
			return within("active", i.Stat("cluster.ratelimit.upstream_rq_active"), 0, 0)
		})
	}
	start := time.Now()
	a := newClient(t).send("GET", i.url("/"), "x-api-key", "staying")
	if elapsed := time.Since(start); a.status != http.StatusOK || elapsed > filterTimeout {
		t.Errorf("status %d after %v, want 200 within %v", a.status, elapsed, filterTimeout)
	}
	if n := i.calls()["error"]; n != errors {
		t.Errorf("Envoy counts %d calls without an answer, want none", n-errors)
	}
	i.redis.Resume()
	eventually(t, patience, "the breaker's end", func() error {
		return within("breakers open", i.sluice.metric(t, "ratelimit_breaker_state"), 0, 0)
	})
}

// HTTP/2 downstream, many streams on one connection; and an Envoy that may put but ten
// calls on a connection to the service opens more of them.
func TestManyStreamsBehindEnvoy(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			server, _ := proc.Redis(t)
			redis := proc.NewProxy(t, server)
			const keepalive = "            connection_keepalive: { interval: 1s, timeout: 5s }\n"
			e := startEdge(t, keepalive, keepalive+"            max_concurrent_streams: 10\n")
			startSluiceOn(t, e.replicas[0], exampleRules, settings{"GRPC_ENGINE": engine, "REDIS_URL": redis.Addr(), "PREFETCH": "off"})
			e.waitHealthy(1)
			redis.Delay(20 * time.Millisecond)
			c := newClient(t)
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{Protocols: protocols}
			t.Cleanup(transport.CloseIdleConnections)
			c.http.Transport = transport
			var streams sync.WaitGroup
			for n := range 64 {
				streams.Go(func() {
					for range 5 {
						if a, err := c.do("GET", e.url("/"), "x-api-key", fmt.Sprintf("stream-%d", n)); err != nil || a.status != http.StatusOK {
							t.Errorf("status %d, %v, want 200", a.status, err)
						}
					}
				})
			}
			streams.Wait()
			e.mustNotFail(t)
			if n := e.Stat("http.edge.downstream_cx_http2_total"); n != 1 {
				t.Errorf("%d HTTP/2 connections downstream, want 1", n)
			}
			// The one downstream connection is one worker's: of its own it would have one.
			if n := e.Stat("cluster.ratelimit.upstream_cx_http2_total"); n < 3 {
				t.Errorf("%d connections to the service, want more for 64 calls at once", n)
			}
		})
	}
}
