//go:build integration

package integration

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sluice-rls/sluice/internal/proc"
)

// fixedPorts is held by a test that listens on the ports that the files name.
var fixedPorts sync.Mutex

// lockFixedPorts waits for the ports of the example and keeps them until all processes
// of the test have ended.
func lockFixedPorts(t *testing.T) {
	t.Helper()
	fixedPorts.Lock()
	t.Cleanup(fixedPorts.Unlock)
}

// compose is what docker-compose.yml starts, as processes of this machine.
type compose struct {
	dir      string
	file     composeFile
	services map[string]*proc.Process
}

// startCompose starts what the docker-compose.yml of a checkout says: its commands with
// its environment, mounted paths being those of the checkout. The images' part is done by
// the same programs. The caller holds fixedPorts.
func startCompose(t *testing.T, dir string) *compose {
	t.Helper()
	c := &compose{dir: dir, file: readCompose(t, dir), services: map[string]*proc.Process{}}
	mustBeFree(t, c.ports(t)...)
	for len(c.services) < len(c.file.Services) {
		before := len(c.services)
		for _, name := range slices.Sorted(maps.Keys(c.file.Services)) {
			s := c.file.Services[name]
			if c.services[name] == nil && c.satisfied(s) {
				c.services[name] = c.start(t, name, s)
			}
		}
		if len(c.services) == before {
			t.Fatalf("services depend on each other: %d of %d started", before, len(c.file.Services))
		}
	}
	return c
}

// ports returns the ports that the services listen on.
func (c *compose) ports(t *testing.T) []int {
	t.Helper()
	ports := []int{edgePort, tcpEdgePort, adminPort, upstreamPort}
	for _, s := range c.file.Services {
		numbers := []string{argument(s.Command, "--port")}
		if s.ours() {
			numbers = []string{s.env("PORT", "8080"), s.env("GRPC_PORT", "8081"), s.env("DEBUG_PORT", "6070")}
		}
		for _, number := range numbers {
			if n, err := strconv.Atoi(number); err == nil {
				ports = append(ports, n)
			}
		}
	}
	return ports
}

// satisfied reports whether all that the service waits for has started.
func (c *compose) satisfied(s *composeService) bool {
	needs := slices.Collect(maps.Keys(s.DependsOn))
	if other, ok := strings.CutPrefix(s.NetworkMode, "service:"); ok {
		needs = append(needs, other)
	}
	return !slices.ContainsFunc(needs, func(name string) bool { return c.services[name] == nil })
}

func (c *compose) start(t *testing.T, name string, s *composeService) *proc.Process {
	t.Helper()
	o := proc.Options{Name: name, Ready: c.ready(t, name, s)}
	if s.ours() {
		o.Path, o.Args = binary, s.Command
	} else {
		o.Path, o.Args = proc.Find(t, s.Command[0]), s.Command[1:]
	}
	mounts := s.mounts()
	o.Args = slices.Clone(o.Args)
	for i, arg := range o.Args {
		if host, ok := mounts[arg]; ok {
			o.Args[i] = filepath.Join(c.dir, host)
		}
	}
	o.Env = settings(s.Environment).list()
	p := proc.Start(t, o)
	if s.ours() {
		t.Cleanup(func() { p.Signal(syscall.SIGKILL) })
	}
	return p
}

// ready returns how to tell that a service has started: its healthcheck if it has one.
func (c *compose) ready(t *testing.T, name string, s *composeService) func(context.Context) error {
	t.Helper()
	switch {
	case s.Healthcheck != nil:
		program := binary
		if !s.ours() {
			program = proc.Find(t, s.Healthcheck.Test[1])
		}
		return func(ctx context.Context) error {
			check := exec.CommandContext(ctx, program, s.Healthcheck.Test[2:]...)
			check.Env = append(os.Environ(), settings(s.Environment).list()...)
			out, err := check.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}
	case s.ours():
		return proc.Answers("http://127.0.0.1:" + s.env("PORT", "8080") + "/healthcheck")
	case name == "upstream":
		return proc.Answers(local(upstreamPort, "/"))
	default:
		return proc.Answers(local(adminPort, "/ready"))
	}
}

// What the compose file says, as it stands, limits requests, and both replicas do it.
func TestComposeAsProcesses(t *testing.T) {
	t.Parallel()
	lockFixedPorts(t)
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	startCompose(t, dir)
	c := newClient(t)
	eventually(t, patience, "both replicas at work", func() error {
		c.send("GET", local(edgePort, "/"), "x-api-key", "warm-up")
		for _, port := range []int{8080, 18080} {
			if n := (&sluice{http: port}).metric(t, "ratelimit_decisions_total"); n == 0 {
				return fmt.Errorf("port %d has decided nothing", port)
			}
		}
		return nil
	})
	all := c.drain(400, "POST", local(edgePort, "/orders"), "x-api-key", "shop-a")
	if all.limited == 0 || all.passed < 200 {
		t.Errorf("%d passed and %d were limited, want 200 at least to pass, the others limited", all.passed, all.limited)
	}
	if all.denial.status != http.StatusTooManyRequests || all.denial.header.Get("retry-after") != "1" {
		t.Errorf("a denial = %q, want 429 with a retry-after of 1", all.denial.limits())
	}
	if a := c.send("GET", local(edgePort, "/"), "x-api-key", "stolen-key"); a.status != http.StatusTooManyRequests {
		t.Errorf("status of a banned key = %d, want 429", a.status)
	}
}
