//go:build integration

package chaos

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/sluice-rls/sluice/internal/proc"
)

// What an instance holds ahead goes back before it ends: the next one finds every token that
// no call has used.
func TestTokensGoBackAtTheEnd(t *testing.T) {
	t.Parallel()
	addr, _ := proc.Redis(t)
	s := start(t, settings{"REDIS_URL": addr, "PREFETCH": "auto", "DRAIN_DELAY": "100ms"})
	s.ready()
	calls := 0
	eventually(t, "tokens are held ahead", func() error {
		calls += s.passed("plenty", "x", 50)
		if s.metric("ratelimit_lease_tokens") == 0 {
			return errors.New("none are")
		}
		return nil
	})
	s.Signal(syscall.SIGTERM)
	if err := s.Wait(); err != nil {
		t.Errorf("the process ended with %v, want exit code 0", err)
	}
	next := start(t, settings{"REDIS_URL": addr})
	next.ready()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	response, err := next.rls.ShouldRateLimit(ctx, request("plenty", "x"))
	if err != nil {
		t.Fatal(err)
	}
	// One token comes back in half a minute.
	if left, want := int(response.GetStatuses()[0].GetLimitRemaining()), 1_000_000-calls-1; left < want || left > want+1 {
		t.Errorf("%d tokens are left after %d calls and one, want %d", left, calls, want)
	}
}
