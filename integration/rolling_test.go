//go:build integration

package integration

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/internal/proc"
)

// Two replicas are replaced one after the other under a steady load through Envoy: no
// request fails, and none goes without its limit. At the rate of production it is
// TestRollingRestartAtFullRate.
func TestRollingRestart(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			// A machine that compiles meanwhile may be late, and loses nothing by it.
			rollingRestart(t, startEdge(t, "timeout: 0.25s", "timeout: 5s"), 300, settings{"GRPC_ENGINE": engine})
		})
	}
}

// rollingRestart sends so many requests a second meanwhile.
func rollingRestart(t *testing.T, e *edge, perSecond int, env settings) {
	t.Helper()
	env["REDIS_URL"], _ = proc.Redis(t)
	var replicas []*sluice
	for _, port := range e.replicas {
		replicas = append(replicas, startSluiceOn(t, port, exampleRules, env))
	}
	e.waitHealthy(2)
	rate := startRate(t, perSecond, e.url("/orders"))
	for i, port := range e.replicas {
		rate.waitFor(perSecond / 2)
		replicas[i].Signal(syscall.SIGTERM)
		if err := endedWell(replicas[i].Process, 8*time.Second); err != nil {
			t.Errorf("end of replica %d: %v, want exit code 0 within 8 seconds", i, err)
		}
		replicas[i] = startSluiceOn(t, port, exampleRules, env)
		e.waitHealthy(2)
	}
	rate.waitFor(perSecond / 2)
	rate.stop()
	calls := e.calls()
	t.Logf("%d requests in %v: by status %v, p99.9 %v; Envoy counts %v", rate.sent, rate.elapsed.Round(time.Millisecond), rate.by, rate.percentile(999), calls)
	if failed := rate.sent - rate.by[http.StatusOK] - rate.by[http.StatusTooManyRequests]; failed != 0 || rate.by[http.StatusTooManyRequests] == 0 {
		t.Errorf("%d of %d requests failed: by status %v", failed, rate.sent, rate.by)
	}
	if most := float64(rate.sent) / rate.elapsed.Seconds(); most < 0.9*float64(perSecond) {
		t.Errorf("%.0f requests a second were sent, want %d", most, perSecond)
	}
	e.mustNotFail(t)
}

// rate is a load of requests that are sent as they are due, whether or not the last ones
// are answered.
type rate struct {
	t    *testing.T
	stop func()

	mu      sync.Mutex // guards the rest
	sent    int
	by      map[int]int // answers by status; 0 had none
	took    []time.Duration
	elapsed time.Duration
}

// startRate sends requests with one of a thousand keys each, some of whose limits they
// exceed.
func startRate(t *testing.T, perSecond int, url string) *rate {
	t.Helper()
	r := &rate{t: t, by: map[int]int{}}
	c, stop := newClient(t), make(chan struct{})
	var sending sync.WaitGroup
	began := time.Now()
	sending.Go(func() {
		due := time.NewTimer(0)
		defer due.Stop()
		for n := 1; ; n++ {
			select {
			case <-due.C:
			case <-stop:
				return
			}
			key := "shop-a"
			if n%3 == 0 {
				key = fmt.Sprint("shop-", n%1000)
			}
			sending.Go(func() { r.send(c, url, key) })
			due.Reset(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(perSecond))))
		}
	})
	r.stop = sync.OnceFunc(func() { close(stop); sending.Wait(); r.elapsed = time.Since(began) })
	t.Cleanup(r.stop)
	return r
}

func (r *rate) send(c *client, url, key string) {
	began := time.Now()
	a, err := c.do("POST", url, "x-api-key", key)
	took := time.Since(began)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && r.by[0] < 10 {
		r.t.Errorf("a request failed: %v", err)
	}
	r.sent++
	r.by[a.status]++
	r.took = append(r.took, took)
}

// waitFor waits until so many more requests are answered.
func (r *rate) waitFor(more int) {
	r.t.Helper()
	answered := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.sent
	}
	target := answered() + more
	eventually(r.t, patience, "requests are answered", func() error {
		if n := answered(); n < target {
			return fmt.Errorf("%d of %d are", n, target)
		}
		return nil
	})
}

// percentile is the time within which so many of a thousand answers came.
func (r *rate) percentile(perMille int) time.Duration {
	took := slices.Sorted(slices.Values(r.took))
	if len(took) == 0 {
		return 0
	}
	return took[min(len(took)*perMille/1000, len(took)-1)].Round(10 * time.Microsecond)
}
