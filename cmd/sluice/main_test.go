package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sluice": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: filepath.Join("testdata", "script")})
}

// server is a serve that runs in this process.
type server struct {
	t       *testing.T
	signals chan<- os.Signal
	exit    chan int
	lines   chan string
	grpc    string
	http    string
	debug   string
}

// start serves with free ports and the given environment, and waits until it listens.
func start(t *testing.T, vars map[string]string, args ...string) *server {
	t.Helper()
	all := map[string]string{
		"PORT": "0", "GRPC_PORT": "0", "DEBUG_PORT": "0",
		"HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1", "DRAIN_DELAY": "0",
	}
	maps.Copy(all, vars)
	r, w := io.Pipe()
	s := &server{t: t, exit: make(chan int, 1), lines: make(chan string, 1000)}
	notified := make(chan struct{})
	e := env{
		lookup: func(name string) (string, bool) { v, ok := all[name]; return v, ok },
		stdout: io.Discard,
		stderr: w,
		notify: func(ch chan<- os.Signal) func() {
			s.signals = ch
			close(notified)
			return func() {}
		},
	}
	go func() {
		s.exit <- run(context.Background(), args, e)
		_ = w.Close()
	}()
	go func() {
		defer close(s.lines)
		for in := bufio.NewScanner(r); in.Scan(); {
			s.lines <- in.Text()
		}
	}()
	line := s.waitLine(`gRPC (\S+), http (\S+), debug (\S+)`)
	s.grpc, s.http, s.debug = line[1], line[2], line[3]
	<-notified
	t.Cleanup(s.stop)
	return s
}

// waitLine waits for a line of the log.
func (s *server) waitLine(pattern string) []string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	timeout := time.After(20 * time.Second)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("serve ended before a line of %q", pattern)
			}
			s.t.Log(line)
			if m := re.FindStringSubmatch(line); m != nil {
				return m
			}
		case <-timeout:
			s.t.Fatalf("no line of %q", pattern)
		}
	}
}

func (s *server) stop() {
	if s.signals == nil {
		return
	}
	s.signals <- syscall.SIGTERM
	s.signals = nil
	select {
	case code := <-s.exit:
		if code != exitOK {
			s.t.Errorf("exit code %d, want 0", code)
		}
	case <-time.After(20 * time.Second):
		s.t.Error("serve does not end")
	}
}

// get reads a page.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// sluice runs another sub-command in this process.
func sluice(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, env{
		lookup: func(string) (string, bool) { return "", false },
		stdout: &out,
		stderr: &errs,
	})
	return code, out.String(), errs.String()
}

func TestServeWithoutSettingsHasTheExampleRules(t *testing.T) {
	s := start(t, nil)
	if code, body := get(t, "http://"+s.http+"/healthcheck"); code != http.StatusOK || body != "OK" {
		t.Errorf("/healthcheck = %d %q", code, body)
	}
	code, out, errs := sluice(t, "try", "-addr", s.grpc, "-domain", "edge", "api_key=shop-a", "route=POST /orders")
	want := "OK\n  descriptor 1: OK, limit 100 per second, remaining 199, reset 1s\n"
	if code != exitOK || out != want || errs != "" {
		t.Errorf("try = %d %q %q, want %q", code, out, errs, want)
	}
	code, out, _ = sluice(t, "try", "-addr", s.grpc, "-domain=edge", "api_key=shop-b", "route=GET /", "-n", "50")
	if !regexp.MustCompile(`^2\d of 50 passed, \d\d denied, in `).MatchString(out) || code != exitOK {
		t.Errorf("try -n 50 = %d %q, want 20 and a few", code, out)
	}
	code, out, _ = sluice(t, "try", "-addr", s.grpc, "-domain", "edge", "-descriptors", "api_key=stolen-key", "-descriptors", "api_key=x,meter=report-cost", "-hits", "0")
	want = "OVER_LIMIT\n  descriptor 1: OVER_LIMIT, limit 0 per second, remaining 0, reset 1s\n" +
		"  descriptor 2: OK, limit 100 per minute, remaining 100, reset 0s\n  Retry-After: 1\n"
	if out != want || code != exitOK {
		t.Errorf("try of two = %d %q, want %q", code, out, want)
	}
	if code, body := get(t, "http://"+s.debug+"/rlconfig"); code != http.StatusOK || !strings.Contains(body, "edge > api_key=shop-a > route=POST /orders: unit=SECOND requests_per_unit=100 burst=200, shadow_mode: false") {
		t.Errorf("/rlconfig = %d %q", code, body)
	}
	s.stop()
	if code, _, errs := sluice(t, "try", "-addr", s.grpc, "-domain", "edge", "a=b"); code != exitError || !strings.Contains(errs, s.grpc) {
		t.Errorf("try without a server = %d %q", code, errs)
	}
}

func TestServeKeepsUpWithItsRules(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rule := func(n int) string {
		return fmt.Sprintf("domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: hour, requests_per_unit: %d}}\n", n)
	}
	write(rule(5))
	s := start(t, nil, "-rules", dir)
	try := func() string {
		t.Helper()
		_, out, _ := sluice(t, "try", "-addr", s.grpc, "-domain", "d", "k=1")
		return out
	}
	if got := try(); !strings.Contains(got, "limit 5 per hour, remaining 4") {
		t.Errorf("before: %s", got)
	}
	write(rule(7))
	s.waitLine("rules loaded.*mistakes=0")
	if got := try(); !strings.Contains(got, "limit 7 per hour, remaining 5") { // the raise gave 2
		t.Errorf("after a raise: %s", got)
	}
	write("domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: hour, requests_per_unit: -1}}\n")
	s.waitLine(`rules file.*rules.yaml:3:`)
	s.waitLine("rules loaded.*mistakes=1")
	if got := try(); !strings.Contains(got, "limit 7 per hour, remaining 4") {
		t.Errorf("after a mistake: %s", got)
	}
	if code, body := get(t, "http://"+s.http+"/readyz"); code != http.StatusOK || !strings.Contains(body, `domain \"d\" keeps its last good rules`) {
		t.Errorf("/readyz with a mistake and rules in force = %d %s", code, body)
	}
	_, metrics := get(t, "http://"+s.http+"/metrics")
	for _, want := range []string{
		`ratelimit_config_reloads_total{result="error",source="file"} 1`,
		`ratelimit_config_reloads_total{result="success",source="file"} 2`,
		"ratelimit_config_last_reload_successful 0",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	s.signals <- syscall.SIGHUP // nothing has changed, so nothing is loaded
	write(rule(9))
	s.waitLine("rules loaded.*mistakes=0")
	if got := try(); !strings.Contains(got, "limit 9 per hour, remaining 5") {
		t.Errorf("after the mend: %s", got)
	}
}

// Rules that were never good leave the process unhealthy until they are mended.
func TestServeWithBrokenRules(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(path, []byte("domain: d\noops: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, nil, "-rules", dir)
	if code, body := get(t, "http://"+s.http+"/healthcheck"); code != http.StatusInternalServerError || !strings.Contains(body, "no domain is in force") {
		t.Errorf("/healthcheck = %d %q", code, body)
	}
	if code, body := get(t, "http://"+s.http+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, `"name":"rules","ok":false`) {
		t.Errorf("/readyz = %d %q", code, body)
	}
	if err := os.WriteFile(path, []byte("domain: d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.waitLine("rules loaded.*mistakes=0")
	if code, _ := get(t, "http://"+s.http+"/healthcheck"); code != http.StatusOK {
		t.Errorf("/healthcheck after the mend = %d", code)
	}
}

// No file at all is no domain, and healthy.
func TestServeWithoutAnyRules(t *testing.T) {
	s := start(t, nil, "-rules", t.TempDir())
	if code, body := get(t, "http://"+s.http+"/readyz"); code != http.StatusOK {
		t.Errorf("/readyz = %d %s", code, body)
	}
	if code, out, _ := sluice(t, "try", "-addr", s.grpc, "-domain", "d", "k=1"); code != exitOK || out != "OK\n  descriptor 1: OK, no limit\n" {
		t.Errorf("try = %d %q", code, out)
	}
}

func TestShutdownSaysNotServingFirst(t *testing.T) {
	s := start(t, map[string]string{"DRAIN_DELAY": "5s"})
	s.signals <- syscall.SIGTERM
	s.waitLine("shutting down")
	for { // the signal has been taken, the state follows at once
		code, body := get(t, "http://"+s.http+"/healthcheck")
		if code == http.StatusInternalServerError && strings.Contains(body, "shutting down") {
			break
		}
	}
	if code, out, _ := sluice(t, "try", "-addr", s.grpc, "-domain", "edge", "api_key=x"); code != exitOK || !strings.HasPrefix(out, "OK") {
		t.Errorf("a call while draining = %d %q", code, out)
	}
	start := time.Now()
	s.stop() // a second signal cuts the delay
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("the second signal took %v", took)
	}
}

func TestAPortInUseIsAnErrorThatNamesTheSetting(t *testing.T) {
	s := start(t, nil)
	_, port, _ := strings.Cut(s.grpc, ":")
	var errs bytes.Buffer
	vars := map[string]string{"GRPC_PORT": port, "GRPC_HOST": "127.0.0.1", "PORT": "0", "DEBUG_PORT": "0"}
	code := run(t.Context(), nil, env{
		lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		stdout: io.Discard, stderr: &errs,
	})
	if code != exitError || !strings.Contains(errs.String(), "GRPC_PORT") || !strings.Contains(errs.String(), port) {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}

// A socket that a killed process left behind is taken over; one that is served is not.
func TestSocketOfAKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sluice.sock")
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	unix, _ := ln.(*net.UnixListener)
	unix.SetUnlinkOnClose(false)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	s := start(t, map[string]string{"GRPC_UDS": path})
	if code, out, errs := sluice(t, "try", "-addr", "unix://"+path, "-domain", "edge", "api_key=x"); code != exitOK || !strings.HasPrefix(out, "OK") {
		t.Errorf("try over the socket = %d %q %q", code, out, errs)
	}
	var errs bytes.Buffer
	vars := map[string]string{"GRPC_UDS": path, "PORT": "0", "DEBUG_PORT": "0"}
	code := run(t.Context(), nil, env{
		lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		stdout: io.Discard, stderr: &errs,
	})
	if code != exitError || !strings.Contains(errs.String(), "GRPC_UDS") {
		t.Errorf("a second process on the socket = %d, %s", code, errs.String())
	}
	s.stop()
}

func TestProbe(t *testing.T) {
	s := start(t, nil)
	if code, _, errs := sluice(t, "probe", "-url", "http://"+s.http+"/healthcheck"); code != exitOK || errs != "" {
		t.Errorf("probe = %d %q", code, errs)
	}
	if code, _, errs := sluice(t, "probe", "-url", "http://"+s.http+"/nothing"); code != exitError || !strings.Contains(errs, "404") {
		t.Errorf("probe of no page = %d %q", code, errs)
	}
	s.stop()
	if code, _, errs := sluice(t, "probe", "-url", "http://"+s.http+"/healthcheck"); code != exitError || errs == "" {
		t.Errorf("probe of no server = %d %q", code, errs)
	}
}

func TestGreetingInALogForMachinesIsARecord(t *testing.T) {
	s := &server{}
	var log bytes.Buffer
	signals := make(chan struct{})
	vars := map[string]string{"PORT": "0", "GRPC_PORT": "0", "DEBUG_PORT": "0", "LOG_FORMAT": "json", "DRAIN_DELAY": "0"}
	ctx, cancel := context.WithCancel(t.Context())
	code := run(ctx, nil, env{
		lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		stdout: io.Discard, stderr: &log,
		notify: func(ch chan<- os.Signal) func() { s.signals = ch; close(signals); cancel(); return func() {} },
	})
	<-signals
	if code != exitOK || !strings.Contains(log.String(), `"msg":"listening"`) {
		t.Errorf("exit %d, log %s", code, log.String())
	}
	for line := range strings.Lines(log.String()) {
		if !strings.HasPrefix(line, "{") {
			t.Errorf("a line that is no JSON: %s", line)
		}
	}
}
