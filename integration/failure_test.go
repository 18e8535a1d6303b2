//go:build integration

package integration

import (
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/internal/proc"
)

// One of two replicas is told to stop while requests come in: nobody notices.
// It runs alone: a machine that is too busy for Envoy to answer in time proves nothing.
func TestStopUnderLoad(t *testing.T) {
	redis, _ := proc.Redis(t)
	e, replicas := startExample(t, 2, exampleRules, settings{"REDIS_URL": redis})
	var answers [600]atomic.Int64
	load := startLoad(t, 8, e.url("/orders"), &answers)
	load.waitFor(200)
	replicas[0].Signal(syscall.SIGTERM)
	if err := endedWell(replicas[0].Process, 8*time.Second); err != nil {
		t.Errorf("end of the replica: %v, want exit code 0 within 8 seconds", err)
	}
	load.waitFor(200)
	load.stop()
	for status := range answers {
		if n := answers[status].Load(); n > 0 && status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Errorf("%d answers with status %d, want only 200 and 429", n, status)
		}
	}
	if ok, limited := answers[http.StatusOK].Load(), answers[http.StatusTooManyRequests].Load(); ok == 0 || limited == 0 {
		t.Errorf("%d answers 200 and %d answers 429, want both", ok, limited)
	}
	e.mustNotFail(t)
}

// load is some clients that send one request after another.
type load struct {
	t      *testing.T
	stop   func()
	served atomic.Int64
}

// startLoad starts clients that count their answers by status, a request without an
// answer as 0.
func startLoad(t *testing.T, clients int, url string, answers *[600]atomic.Int64) *load {
	t.Helper()
	l := &load{t: t}
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for range clients {
		c := newClient(t)
		wg.Go(func() {
			for !stopped.Load() {
				a, _ := c.do("POST", url, "x-api-key", "shop-a")
				answers[a.status].Add(1)
				l.served.Add(1)
			}
		})
	}
	l.stop = sync.OnceFunc(func() { stopped.Store(true); wg.Wait() })
	t.Cleanup(l.stop)
	return l
}

// waitFor waits until so many more requests are done.
func (l *load) waitFor(more int64) {
	l.t.Helper()
	target := l.served.Load() + more
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for l.served.Load() < target {
		select {
		case <-tick.C:
		case <-l.t.Context().Done():
			l.t.Fatal("the test ended")
		}
	}
}

// A replica that dies without a word costs the limits of a few calls, and no request.
func TestKillUnderLoad(t *testing.T) {
	t.Parallel()
	redis, _ := proc.Redis(t)
	e, replicas := startExample(t, 2, exampleRules, settings{"REDIS_URL": redis})
	var answers [600]atomic.Int64
	load := startLoad(t, 4, e.url("/orders"), &answers)
	load.waitFor(200)
	replicas[0].Signal(syscall.SIGKILL)
	e.waitHealthy(1)
	load.waitFor(100) // what was in flight is done
	// Calls that failed for want of a connection, as those to the dead one do.
	const refused = "cluster.ratelimit.upstream_rq_pending_failure_eject"
	before := e.Stat(refused)
	load.waitFor(500)
	load.stop()
	// What was in flight, and what was sent before Envoy ejected it.
	if err := within("calls without an answer", before, 0, 20); err != nil {
		t.Error(err)
	}
	if after := e.Stat(refused); after != before {
		t.Errorf("%d more calls had no answer after the health check, want none", after-before)
	}
	for status := range answers {
		if n := answers[status].Load(); n > 0 && status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Errorf("%d answers with status %d, want only 200 and 429", n, status)
		}
	}
}

// Who starts one Sluice with the example, which names two, gets a limit on every request.
func TestOneReplica(t *testing.T) {
	t.Parallel()
	e, _ := startExample(t, 1, exampleRules, nil)
	newClient(t).drain(300, "GET", e.url("/"), "x-api-key", "one").obeys(t, 20, 10)
	e.mustNotFail(t)
}

// R89: without any Sluice, failure_mode_deny decides.
// Without any Sluice, Envoy's failure_mode_deny says what becomes of requests.
func TestNoReplica(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deny   string
		status int
	}{
		"let through": {"failure_mode_deny: false", http.StatusOK},
		"refused":     {"failure_mode_deny: true", http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startEdge(t, "failure_mode_deny: false", test.deny)
			c := newClient(t)
			request := func() answer { return c.send("GET", e.url("/"), "x-api-key", "stolen-key") }
			if got := request().status; got != test.status {
				t.Errorf("status before Sluice started = %d, want %d", got, test.status)
			}
			s := startSluiceOn(t, e.replicas[0], exampleRules, nil)
			e.waitHealthy(1)
			if got := request().status; got != http.StatusTooManyRequests {
				t.Errorf("status with Sluice = %d, want 429 for a banned key", got)
			}
			s.Signal(syscall.SIGKILL)
			s.Wait() //nolint:errcheck // killed
			if got := request().status; got != test.status {
				t.Errorf("status after Sluice died = %d, want %d", got, test.status)
			}
		})
	}
}
