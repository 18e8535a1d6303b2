//go:build integration

package integration

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/sluice-rls/sluice/internal/proc"
)

// Started with no settings at all, sluice serves the built-in example on the usual ports,
// and the example's Envoy, as it stands, is limited by it.
func TestNoSettings(t *testing.T) {
	t.Parallel()
	lockFixedPorts(t)
	mustBeFree(t, replica1Port, 8080, 6070, edgePort, tcpEdgePort, adminPort, upstreamPort)
	s := proc.Start(t, proc.Options{
		Name: "sluice", Path: binary, Dir: t.TempDir(), Ready: proc.Answers(local(8080, "/healthcheck")),
	})
	t.Cleanup(func() { s.Signal(syscall.SIGKILL) })
	for _, want := range []string{"built-in example", ":8081", ":8080", `127\.0\.0\.1:6070`, "try -domain edge"} {
		s.WaitLog(want)
	}

	try := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		args = append([]string{"try", "-domain", "edge", "api_key=shop-a", "route=POST /orders"}, args...)
		out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("sluice %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := try(); !regexp.MustCompile(`(?s)^OK\n.*100 per second, remaining 199, reset 1s`).MatchString(out) {
		t.Errorf("try = %q, want OK, 199 remaining of 100 per second", out)
	}
	passed, err := strconv.Atoi(mustFind(t, try("-n", "400"), `^(\d+) of 400 passed`))
	if err != nil || passed < 199 || passed >= 400 {
		t.Errorf("%d of 400 passed (%v), want 199 at least and not all", passed, err)
	}

	proc.StartEnvoy(t, proc.EnvoyOptions{Name: "upstream", Config: "../examples/envoy/upstream.yaml", Ready: proc.Answers(local(upstreamPort, "/"))})
	envoy := proc.StartEnvoy(t, proc.EnvoyOptions{Config: "../examples/envoy/envoy.yaml", Admin: addr(adminPort)})
	e := &edge{Envoy: envoy, http: edgePort, tcp: tcpEdgePort}
	e.waitHealthy(1)
	newClient(t).drain(100, "GET", e.url("/"), "x-api-key", "plain").obeys(t, 20, 10)
	e.mustNotFail(t)
}

// Half a setting and a broken file end the process with a reason, and no secret in it.
func TestMistakes(t *testing.T) {
	t.Parallel()
	broken := copyRules(t)
	editRules(t, broken, ordersRule, "{ unit: second, requests_per_unit: -1, burst: 0 }")
	for name, test := range map[string]struct {
		args []string
		env  settings
		code int
		want string // a regular expression
	}{
		"rules that load":      {[]string{"check", exampleRules}, nil, 0, `(?m)^ok: `},
		"rules that do not":    {[]string{"check", broken}, nil, 1, `edge\.yaml:\d+:\d+: .*requests_per_unit.*-1[\s\S]*edge\.yaml:\d+:\d+: .*burst.*0`},
		"a URL that is none":   {nil, settings{"REDIS_URL": "redis://:hunter2@localhost:port"}, 2, `REDIS_URL`},
		"a type without a URL": {nil, settings{"REDIS_TYPE": "CLUSTER"}, 2, `REDIS_URL`},
		"a folder that is not": {[]string{"serve", "-rules", "no/such/folder"}, nil, 2, `no/such/folder`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c := exec.CommandContext(ctx, binary, test.args...)
			c.Env = append(os.Environ(), test.env.list()...)
			out, _ := c.CombinedOutput()
			if got := c.ProcessState.ExitCode(); got != test.code {
				t.Errorf("exit code = %d, want %d; output:\n%s", got, test.code, out)
			}
			if !regexp.MustCompile(test.want).Match(out) {
				t.Errorf("output = %s, want a match of %s", out, test.want)
			}
			if bytes.Contains(out, []byte("hunter2")) {
				t.Errorf("output has the password: %s", out)
			}
		})
	}
}
