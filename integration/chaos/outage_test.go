//go:build integration

package chaos

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-rls/sluice/internal/proc"
)

// kill ends Redis and waits until an instance decides without it.
func kill(t *testing.T, p *proc.Process, all ...*instance) {
	t.Helper()
	p.Signal(syscall.SIGKILL)
	<-p.Done()
	for i, s := range all {
		eventually(t, "the breaker opens", func() error {
			s.passes("day", fmt.Sprint("kill", i))
			if !s.degraded() {
				return fmt.Errorf("instance %d still asks Redis", i)
			}
			return nil
		})
	}
}

// Three instances that know of each other share a limit in an outage, and what was denied
// before, in or after it stays denied.
func TestTheShareOfAnInstance(t *testing.T) {
	t.Parallel()
	addr, p := proc.Redis(t)
	all := make([]*instance, 3)
	for i := range all {
		all[i] = start(t, settings{"REDIS_URL": addr})
	}
	for _, s := range all {
		s.ready()
		eventually(t, "three instances are counted", func() error {
			if n := s.metric("ratelimit_instances"); n != 3 {
				return fmt.Errorf("it counts %v", n)
			}
			return nil
		})
	}
	if n := all[0].passed("day", "denied", 40); n != 30 {
		t.Errorf("%d calls passed before the outage, want 30", n)
	}
	kill(t, p, all...)
	if n := all[0].passed("day", "denied", 10); n != 0 {
		t.Errorf("%d calls passed of a key that was denied before the outage", n)
	}
	for i, s := range all {
		if n := s.passed("day", "new", 40); n != 10 {
			t.Errorf("instance %d let %d calls of a new key pass, want a third of 30", i, n)
		}
	}
	for key, want := range map[string]int{"ten": 10, "hundred": 100, "window": 5} {
		sum := 0
		for _, s := range all {
			sum += s.passed(key, "new", want)
		}
		if sum != want {
			t.Errorf("%d calls of %s pass on three instances, want %d: they know which of them gets what does not divide", sum, key, want)
		}
	}
	proc.RedisOn(t, port(t, addr)) // it comes back with nothing
	for i, s := range all {
		eventually(t, "the breaker closes", func() error {
			if s.degraded() {
				return fmt.Errorf("instance %d decides without Redis", i)
			}
			return nil
		})
	}
	after := 0
	for _, s := range all {
		after += s.passed("day", "new", 40)
	}
	if after > 20 {
		t.Errorf("%d calls of the key passed after the outage, want that what was let through in it counts", after)
	}
}

// R89, R90: what becomes of calls without Redis is a choice, and holds for each of them.
func TestOnFailureOfARule(t *testing.T) {
	t.Parallel()
	addr, p := proc.Redis(t)
	s := start(t, settings{"REDIS_URL": addr})
	s.ready()
	kill(t, p, s)
	if n := s.passed("open", "x", 100); n != 100 {
		t.Errorf("%d of 100 calls of on_failure: allow passed", n)
	}
	if n := s.passed("closed", "x", 10); n != 0 {
		t.Errorf("%d of 10 calls of on_failure: deny passed", n)
	}
	for _, reason := range []string{"degraded_allow", "degraded_deny", "local_share"} {
		if s.metric("ratelimit_decisions_total", `reason="`+reason+`"`) == 0 {
			t.Errorf("no decision is counted as %s", reason)
		}
	}
	if n := s.metric("ratelimit_degraded", `mode="local"`); n != 1 {
		t.Errorf("ratelimit_degraded{mode=local} = %v, want 1", n)
	}
}

func TestFailureModeError(t *testing.T) {
	t.Parallel()
	addr, p := proc.Redis(t)
	s := start(t, settings{"REDIS_URL": addr, "FAILURE_MODE": "error"})
	s.ready()
	s.decides()
	p.Signal(syscall.SIGKILL)
	<-p.Done()
	for range 20 {
		if _, err := s.rls.ShouldRateLimit(t.Context(), request("day", "x")); status.Code(err) != codes.Unavailable {
			t.Errorf("err = %v, want Unavailable", err)
		}
	}
}

// R35: health follows Redis where it is told to, and says so where it is not.
func TestHealthInAnOutage(t *testing.T) {
	t.Parallel()
	addr, p := proc.Redis(t)
	plain := start(t, settings{"REDIS_URL": addr})
	tied := start(t, settings{"REDIS_URL": addr, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": "true"})
	is := func(s *instance, path string, want int, says string) {
		t.Helper()
		eventually(t, path, func() error {
			if code, page := s.get(path); code != want || !strings.Contains(page, says) {
				return fmt.Errorf("it is %d %s, want %d and %q", code, page, want, says)
			}
			return nil
		})
	}
	well := func() {
		t.Helper()
		for _, s := range []*instance{plain, tied} {
			is(s, "/healthcheck", http.StatusOK, "OK")
			is(s, "/readyz", http.StatusOK, `{"name":"redis","ok":true}`)
		}
	}
	ill := func() {
		t.Helper()
		const why = "no answer from Redis"
		is(tied, "/healthcheck", http.StatusInternalServerError, why)
		is(tied, "/readyz", http.StatusServiceUnavailable, why)
		is(plain, "/healthcheck", http.StatusOK, "OK")
		is(plain, "/readyz", http.StatusOK, why) // Redis has been reached before, and calls are answered
	}
	well()
	p.Signal(syscall.SIGSTOP)
	for _, s := range []*instance{plain, tied} {
		eventually(t, "the breaker opens", func() error {
			if s.passes("day", "hung"); !s.degraded() {
				return errors.New("Redis is still asked")
			}
			return nil
		})
	}
	ill()
	p.Signal(syscall.SIGCONT)
	well()
	kill(t, p, plain, tied)
	ill()
	proc.RedisOn(t, port(t, addr))
	well()
}

// Before Redis was ever reached calls are answered, and the process is not ready.
func TestStartBeforeRedis(t *testing.T) {
	t.Parallel()
	number := proc.FreePort(t)
	s := start(t, settings{"REDIS_URL": local(number), "INSTANCES": "3"})
	if code, _ := s.get("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz is %d, want 503", code)
	}
	if n := s.passed("day", "x", 20); n != 10 {
		t.Errorf("%d of 20 calls passed, want a third of 30", n)
	}
	proc.RedisOn(t, number)
	s.ready()
	s.decides()
}

func TestSwitches(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "switches.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("mode: deny\n")
	s := start(t, settings{"SWITCHES_FILE": file})
	if s.passes("nothing", "x") {
		t.Error("a call passed at the start, want the file to deny it")
	}
	write("mode: enforce\n")
	eventually(t, "the file is read again", func() error {
		if !s.passes("nothing", "x") {
			return errors.New("calls are denied")
		}
		return nil
	})
	if line := s.WaitLog("a switch was turned.*new=enforce"); !strings.Contains(line, "old=deny") || !strings.Contains(line, file) {
		t.Errorf("the log says %q, want the old position and the file", line)
	}
	if n := s.passed("day", "x", 40); n != 30 {
		t.Errorf("%d of 40 calls passed, want 30", n)
	}
	turn, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.debug+"/switches?mode=shadow&by=ann", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Timeout: patience}).Do(turn)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close() //nolint:errcheck // its status says it all
	if response.StatusCode != http.StatusOK || !s.passes("day", "x") {
		t.Errorf("status %d, want 200, and that calls pass now", response.StatusCode)
	}
	s.WaitLog("a switch was turned.*new=shadow.*ann at 127.0.0.1")
}

// Ten minutes of outage are too long for a test; what grows does so in seconds.
func TestNothingGrowsInAnOutage(t *testing.T) {
	t.Parallel()
	addr, p := proc.Redis(t)
	s := start(t, settings{"REDIS_URL": addr, "REDIS_MAX_IN_FLIGHT": "50"})
	s.ready()
	l := startLoad(t, []*instance{s}, nil, 500)
	pause(time.Second)
	before := s.metric("go_goroutines")
	p.Signal(syscall.SIGSTOP)
	most := 0.0
	for range 20 {
		pause(100 * time.Millisecond)
		most = max(most, s.metric("ratelimit_redis_in_flight"))
	}
	if after := s.metric("go_goroutines"); after > before+60 {
		t.Errorf("%v goroutines, and %v before the outage", after, before)
	}
	if most > 50 {
		t.Errorf("%v commands were in flight, want 50 at most", most)
	}
	p.Signal(syscall.SIGCONT)
	s.decides()
	if l.end(); l.seen.errors > 0 {
		t.Errorf("%d of %d calls had no answer", l.seen.errors, len(l.seen.calls))
	}
}

// The end takes no longer because Redis says nothing, and loses no call.
func TestStopInAnOutage(t *testing.T) {
	t.Parallel()
	addr, p := proc.Redis(t)
	s := start(t, settings{"REDIS_URL": addr, "DRAIN_DELAY": "1s", "PREFETCH": "auto"})
	s.ready()
	l := startLoad(t, []*instance{s}, nil, 200)
	pause(500 * time.Millisecond)
	p.Signal(syscall.SIGSTOP)
	pause(500 * time.Millisecond)
	began := time.Now()
	s.Signal(syscall.SIGTERM)
	pause(800 * time.Millisecond) // Envoy has stopped sending by then
	if l.end(); l.seen.errors > 0 {
		t.Errorf("%d of %d calls had no answer before the listeners closed", l.seen.errors, len(l.seen.calls))
	}
	if err := s.Wait(); err != nil {
		t.Errorf("the process ended with %v, want exit code 0", err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the end took %v, want 8s at most", took)
	}
	p.Signal(syscall.SIGCONT)
}
