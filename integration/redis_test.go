//go:build integration

package integration

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-rls/sluice/internal/proc"
)

// R35, R36, R90: calls are answered while Redis is away or not yet there, and shared again when it is back.
// Redis gone, hung, or not there yet: calls are answered in time and counted, the process
// is healthy, and Redis decides again once it is back.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		addr, p := proc.Redis(t)
		s := startSluice(t, exampleRules, settings{"REDIS_URL": addr})
		ask(t, s.client(t), awayRequest())
		p.Signal(syscall.SIGKILL)
		p.Wait() //nolint:errcheck // killed
		s.answersWithoutRedis(t)
		startRedisAt(t, addr)
		s.recovers(t)
	})
	t.Run("hung", func(t *testing.T) {
		t.Parallel()
		addr, p := proc.Redis(t)
		s := startSluice(t, exampleRules, settings{"REDIS_URL": addr, "REDIS_BUDGET": "20ms"})
		ask(t, s.client(t), awayRequest())
		p.Signal(syscall.SIGSTOP)
		s.answersWithoutRedis(t)
		p.Signal(syscall.SIGCONT)
		s.recovers(t)
	})
	t.Run("late", func(t *testing.T) {
		t.Parallel()
		addr := addr(proc.FreePort(t))
		s := startSluice(t, exampleRules, settings{"REDIS_URL": addr})
		s.answersWithoutRedis(t)
		startRedisAt(t, addr)
		s.recovers(t)
	})
}

func awayRequest() *rlsv3.RateLimitRequest {
	return edgeRequest(descriptor("api_key", "away", "meter", "report-cost"))
}

// degraded returns how many decisions were made without Redis.
func (s *sluice) degraded(t *testing.T) float64 {
	t.Helper()
	return s.metric(t, "ratelimit_decisions_total", `domain="edge"`, `reason="local_share"`)
}

func (s *sluice) answersWithoutRedis(t *testing.T) {
	t.Helper()
	c := s.client(t)
	failed, degraded := s.metric(t, "ratelimit_redis_errors_total"), s.degraded(t)
	for i := range 10 {
		start := time.Now()
		response := ask(t, c, awayRequest())
		if elapsed := time.Since(start); elapsed > time.Second {
			t.Errorf("answer %d took %v, want no more than the budget", i, elapsed)
		}
		if got := response.GetOverallCode(); got != rlsv3.RateLimitResponse_OK {
			t.Errorf("overall code %d = %v, want OK", i, got)
		}
	}
	if n := s.metric(t, "ratelimit_redis_errors_total"); n <= failed {
		t.Errorf("ratelimit_redis_errors_total went from %v to %v, want more", failed, n)
	}
	if n := s.degraded(t) - degraded; n != 10 {
		t.Errorf("%v decisions more are counted as local_share, want 10", n)
	}
	if a := newClient(t).send("GET", s.url("/healthcheck")); a.status != http.StatusOK {
		t.Errorf("status of /healthcheck = %d, want 200: a restart would not bring Redis back", a.status)
	}
}

// recovers waits until a decision is Redis' again.
func (s *sluice) recovers(t *testing.T) {
	t.Helper()
	c := s.client(t)
	eventually(t, patience, "Redis decides", func() error {
		before := s.degraded(t)
		ask(t, c, awayRequest())
		if n := s.degraded(t) - before; n != 0 {
			return fmt.Errorf("%v decisions more without it", n)
		}
		return nil
	})
}

// startRedisAt starts a redis-server at an address that is known to a sluice already.
func startRedisAt(t *testing.T, addr string) {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	proc.RedisOn(t, n)
}

// A ban needs no bucket, and so no Redis.
func TestBanWithoutRedis(t *testing.T) {
	t.Parallel()
	redis, p := proc.Redis(t)
	s := startSluice(t, exampleRules, settings{"REDIS_URL": redis})
	p.Signal(syscall.SIGKILL)
	response := ask(t, s.client(t), edgeRequest(descriptor("api_key", "stolen-key")))
	if got := response.GetOverallCode(); got != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("overall code = %v, want OVER_LIMIT", got)
	}
}
