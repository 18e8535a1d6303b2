//go:build integration && long

package integration

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-rls/sluice/internal/proc"
)

// peersRules have a limit for a user, and none that is reached for the rest.
const peersRules = `domain: interop
descriptors:
- { key: user, rate_limit: { unit: hour, requests_per_unit: 3 } }
- { key: free, rate_limit: { unit: minute, requests_per_unit: 1000000 } }
`

// python and java are the commands of the clients in peers, which scripts/tools.sh fetches.
func python(t *testing.T) []string {
	t.Helper()
	return []string{fetched(t, "grpcio/bin/python3"), filepath.Join("peers", "peer.py")}
}

func java(t *testing.T) []string {
	t.Helper()
	return []string{proc.Find(t, "java"), "-cp", filepath.Join(fetched(t, "grpc-java"), "*"), filepath.Join("peers", "Peer.java")}
}

// fetched is a path in .cache.
func fetched(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(root, ".cache", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: scripts/tools.sh python java fetches it", err)
	}
	return path
}

// Clients of other languages, over TLS and in the clear, with either engine.
func TestPeersOfOtherLanguages(t *testing.T) {
	rules := t.TempDir()
	if err := os.WriteFile(filepath.Join(rules, "interop.yaml"), []byte(peersRules), 0o600); err != nil {
		t.Fatal(err)
	}
	for language, command := range map[string]func(*testing.T) []string{"Python": python, "Java": java} {
		for _, engine := range engines {
			for _, secure := range []bool{false, true} {
				name := language + " " + engine
				env := settings{"GRPC_ENGINE": engine}
				c := newCertificates(t)
				var files []string
				if secure {
					name += " TLS"
					env = c.server(engine, true)
					files = []string{c.authority.File, c.clientCert, c.clientKey}
				}
				t.Run(name, func(t *testing.T) {
					server, _ := proc.Redis(t)
					redis := proc.NewProxy(t, server)
					env["REDIS_URL"], env["REDIS_BUDGET"], env["PREFETCH"] = redis.Addr(), "10s", "off"
					s := startSluice(t, rules, env)
					peer := command(t)
					runPeer(t, append(append(peer, "calls", addr(s.grpc)), files...), nil)
					runPeer(t, append(append(peer, "hanging", addr(s.grpc)), files...), redis.Stall)
				})
			}
		}
	}
}

// runPeer runs a client to its end, and does what it is told when the client is ready.
func runPeer(t *testing.T, command []string, ready func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said, stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if lines.Text() == "ready" {
			ready()
			if _, err := io.WriteString(stdin, "\n"); err != nil {
				t.Error(err)
			}
		}
	}
	if err := c.Wait(); err != nil || !strings.Contains(said.String(), "ok ") {
		t.Errorf("%q: %v\n%s%s", command, err, &said, &stderr)
	}
}
