//go:build integration

package integration

import (
	"net/http"
	"testing"
)

// Envoy's pings, one a second on a connection that carries no call, are more than a
// stock grpc-go allows: it would close the connection after the fourth or fifth.
func TestKeepalive(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			e, _ := startExample(t, 1, exampleRules, settings{"GRPC_ENGINE": engine})
			testKeepalive(t, e)
		})
	}
}

func testKeepalive(t *testing.T, e *edge) {
	t.Helper()
	c := newClient(t)
	if a := c.send("GET", e.url("/"), "x-api-key", "idle"); a.status != http.StatusOK {
		t.Fatalf("status = %d, want 200", a.status)
	}
	const uptime, opened = "server.uptime", "cluster.ratelimit.upstream_cx_total"
	connections := e.Stat(opened)
	if connections == 0 {
		t.Fatalf("%s = 0, want a connection to watch", opened)
	}
	// The pings themselves have no counter. They are up to 1.15s apart, so in ten seconds
	// of Envoy's life there are eight at least.
	start := e.Stat(uptime)
	e.WaitStats(`server\.uptime`, func(stats map[string]int64) bool { return stats[uptime] >= start+10 })
	if a := c.send("GET", e.url("/"), "x-api-key", "idle"); a.status != http.StatusOK {
		t.Errorf("status after the pings = %d, want 200", a.status)
	}
	for name, want := range map[string]int64{
		"cluster.ratelimit.upstream_cx_destroy":      0,
		"cluster.ratelimit.upstream_cx_close_notify": 0,
		"cluster.ratelimit.http2.keepalive_timeout":  0,
	} {
		if got := e.Stat(name); got != want {
			t.Errorf("%s = %d, want %d", name, got, want)
		}
	}
	e.mustNotFail(t)
}
