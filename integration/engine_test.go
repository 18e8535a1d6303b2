//go:build integration

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// engines are the values of GRPC_ENGINE.
var engines = []string{"grpc-go", "lean"}

// Whatever serves the calls, Envoy sees the same: limits, bytes that are no text, values
// of 50 kB, health.
func TestEnginesBehindEnvoy(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			e, _ := startExample(t, 1, exampleRules, settings{"GRPC_ENGINE": engine})
			c := newClient(t)
			c.drain(60, "GET", e.url("/search?user=%ff%fe"), "x-api-key", "opaque").obeys(t, 10, 5)
			if a := c.send("GET", e.url("/"), "x-api-key", strings.Repeat("k", 50_000)); a.status != http.StatusOK {
				t.Errorf("a long value: status = %d, want 200", a.status)
			}
			e.mustNotFail(t)
		})
	}
}

// A connection that is told to go away loses no call of Envoy's.
func TestRotationLosesNoCall(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			e, _ := startExample(t, 1, exampleRules, settings{"GRPC_ENGINE": engine, "GRPC_MAX_CONNECTION_AGE": "1s"})
			const rotated = "cluster.ratelimit.upstream_cx_close_notify"
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range 8 {
				c := newClient(t)
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						if _, err := c.do("GET", e.url("/"), "x-api-key", "rotating"); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			e.WaitStats(`cluster\.ratelimit\.upstream_cx_close_notify`, func(stats map[string]int64) bool { return stats[rotated] >= 3 })
			close(stop)
			wg.Wait()
			e.mustNotFail(t)
		})
	}
}

// Envoy has a second gRPC client, that of Google's library.
func TestEnvoysGoogleClient(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := startSluice(t, exampleRules, settings{"GRPC_ENGINE": engine})
			e := startEdge(t, "envoy_grpc: { cluster_name: ratelimit }",
				fmt.Sprintf("google_grpc: { target_uri: %q, stat_prefix: rls }", addr(s.grpc)))
			c := newClient(t)
			c.drain(60, "GET", e.url("/search?user=%ff%fe"), "x-api-key", "opaque").obeys(t, 10, 5)
			e.mustNotFail(t)
		})
	}
}
