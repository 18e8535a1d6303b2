//go:build integration

package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-rls/sluice/internal/proc"
)

// The ports that the files of examples/envoy name.
const (
	edgePort     = 8888
	tcpEdgePort  = 8889
	adminPort    = 8001
	upstreamPort = 9001
	replica1Port = 8081
	replica2Port = 18081
)

// edge is the example: an Envoy that listens for HTTP and raw TCP, the upstream behind
// it, and the ports at which it looks for replicas.
type edge struct {
	*proc.Envoy
	http, tcp int
	replicas  [2]int
}

// startEdge starts the example's two Envoys on free ports. Edits are pairs of what to
// replace in envoy.yaml and its replacement; all else is as it stands. Replicas are the
// caller's to start.
func startEdge(t *testing.T, edits ...string) *edge {
	t.Helper()
	e := &edge{http: proc.FreePort(t), tcp: proc.FreePort(t), replicas: [2]int{proc.FreePort(t), proc.FreePort(t)}}
	admin, upstream := proc.FreePort(t), proc.FreePort(t)

	config := exampleConfig(t, "upstream.yaml", portEdits(map[int]int{upstreamPort: upstream})...)
	proc.StartEnvoy(t, proc.EnvoyOptions{Name: "upstream", Config: config, Ready: proc.Answers(local(upstream, "/"))})

	config = exampleConfig(t, "envoy.yaml", append(edits, portEdits(map[int]int{
		edgePort: e.http, tcpEdgePort: e.tcp, adminPort: admin, upstreamPort: upstream,
		replica1Port: e.replicas[0], replica2Port: e.replicas[1],
	})...)...)
	e.Envoy = proc.StartEnvoy(t, proc.EnvoyOptions{Config: config, Admin: addr(admin)})
	return e
}

// startExample starts the example with replicas of sluice that serve the folder of rules
// and waits until Envoy knows them.
func startExample(t *testing.T, replicas int, rules string, env settings) (*edge, []*sluice) {
	t.Helper()
	e := startEdge(t)
	var all []*sluice
	for _, port := range e.replicas[:replicas] {
		all = append(all, startSluiceOn(t, port, rules, env))
	}
	e.waitHealthy(replicas)
	return e, all
}

// waitHealthy waits until Envoy's health checks find so many replicas that serve.
func (e *edge) waitHealthy(replicas int) {
	e.WaitStats(`cluster\.ratelimit\.membership_healthy`, func(stats map[string]int64) bool {
		return stats["cluster.ratelimit.membership_healthy"] == int64(replicas)
	})
}

// calls returns how Envoy's rate limit filter counted its calls: "ok", "over_limit",
// "error", "failure_mode_allowed".
func (e *edge) calls() map[string]int64 {
	const prefix = "cluster.upstream.ratelimit."
	calls := map[string]int64{}
	for name, n := range e.Stats(`cluster\.upstream\.ratelimit\..*`) {
		calls[strings.TrimPrefix(name, prefix)] = n
	}
	return calls
}

// mustNotFail fails the test if any rate limit call had no answer. Envoy lets such a
// request through, so no count of the test would mean a thing.
func (e *edge) mustNotFail(t *testing.T) {
	t.Helper()
	if calls := e.calls(); calls["error"] != 0 || calls["failure_mode_allowed"] != 0 || calls["ok"] == 0 {
		t.Errorf("Envoy counts %v, want some ok, no error and no failure_mode_allowed; of the calls it says %v",
			calls, e.Stats(`cluster\.ratelimit\.(upstream_rq_(timeout|rx_reset|tx_reset|50.)|upstream_cx_(connect_fail|close_notify|destroy)|health_check\.failure)`))
	}
}

// url returns the URL of a path at the HTTP edge.
func (e *edge) url(path string) string { return local(e.http, path) }

// exampleConfig writes a copy of a file of examples/envoy with some texts replaced. Each
// of them has to be there, so that the tests can't leave the example behind.
func exampleConfig(t *testing.T, name string, oldnew ...string) string {
	t.Helper()
	path := filepath.Join(root, "examples", "envoy", name)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(string(b), oldnew[i]) {
			t.Fatalf("%s has no %q", path, oldnew[i])
		}
	}
	copied := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(copied, []byte(strings.NewReplacer(oldnew...).Replace(string(b))), 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}

// portEdits returns the replacements that put other port numbers into a configuration.
func portEdits(ports map[int]int) []string {
	var edits []string
	for from, to := range ports {
		edits = append(edits, fmt.Sprintf("port_value: %d }", from), fmt.Sprintf("port_value: %d }", to))
	}
	return edits
}

// copyRules returns a folder of its own with the example's rules, to be edited.
func copyRules(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "rules")
	if err := os.CopyFS(dir, os.DirFS(exampleRules)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// editRules replaces a text of the copied rules that has to be there, once.
func editRules(t *testing.T, dir, from, to string) {
	t.Helper()
	path := filepath.Join(dir, "edge.yaml")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), from); n != 1 {
		t.Fatalf("%s has %q %d times, want once", path, from, n)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), from, to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// mustBeFree fails the test if someone listens on one of the fixed ports.
func mustBeFree(t *testing.T, ports ...int) {
	t.Helper()
	for _, port := range ports {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":"+strconv.Itoa(port))
		if err != nil {
			t.Fatalf("this test needs port %d: %v", port, err)
		}
		l.Close() //nolint:errcheck // nothing was accepted
	}
}
