//go:build integration

package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

const budgetRules = `domain: edge
descriptors:
- key: api_key
  descriptors:
  - key: meter
    value: model-tokens
    rate_limit: { unit: hour, requests_per_unit: 21 }
- key: api_key
  value: model
  descriptors:
  - key: meter
    value: model-tokens
    rate_limit: { unit: day, requests_per_unit: 50000 }
`

// Budgets that are checked before and charged after the response, in both stores: with 21
// an hour and 10 a response three pass and then none; a charge of 100,000 on a bucket of
// 50,000 is taken down to minus 50,000.
func TestCheckThenCharge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(budgetRules), 0o600); err != nil {
		t.Fatal(err)
	}
	e := startEdge(t, "%RESP(x-tokens-used)%", "%REQ(x-cost)%")
	s := startSluiceOn(t, e.replicas[0], dir, nil)
	e.waitHealthy(1)
	c, rls := newClient(t), s.client(t)

	// charge sends a request that turns out to cost so much, and waits until it is paid.
	charge := func(key, cost string, left uint32) {
		t.Helper()
		if a := c.send("POST", e.url("/v1/chat"), "x-api-key", key, "x-cost", cost); a.status != http.StatusOK {
			t.Fatalf("status = %d with budget left, want 200", a.status)
		}
		budget := descriptor("api_key", key, "meter", "model-tokens")
		budget.HitsAddend = wrapperspb.UInt64(0)
		eventually(t, patience, "the charge", func() error {
			if got := ask(t, rls, edgeRequest(budget)).GetStatuses()[0].GetLimitRemaining(); got != left {
				return fmt.Errorf("remaining = %d, want %d", got, left)
			}
			return nil
		})
	}
	denied := func(key string, least, most int) {
		t.Helper()
		a := c.send("POST", e.url("/v1/chat"), "x-api-key", key, "x-cost", "1")
		if a.status != http.StatusTooManyRequests {
			t.Errorf("status = %d with the budget spent, want 429", a.status)
		}
		mustBeWithin(t, a, "retry-after", least, most)
	}

	charge("gateway", "10", 11)
	charge("gateway", "10", 1)
	charge("gateway", "10", 0) // 9 more than there were
	denied("gateway", 10*171, 10*172)

	charge("model", "100000", 0)
	denied("model", 86000, 86402) // 50,001 tokens at 50,000 a day
	e.mustNotFail(t)
}
