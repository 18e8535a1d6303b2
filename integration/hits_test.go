//go:build integration

package integration

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// testCost takes several tokens with one request, as its x-cost says: 100 a minute.
func testCost(t *testing.T, e *edge) {
	t.Helper()
	const perToken = 600 * time.Millisecond
	c := newClient(t)
	start := time.Now()
	if got, want := c.send("GET", e.url("/reports"), "x-api-key", "cost", "x-cost", "30").limits(),
		"200 | 100, 100;w=60, 50;w=1 | 70 | 18 | - | -"; got != want {
		t.Errorf("answer to a cost of 30 = %q, want %q", got, want)
	}
	// 100 - 30 - 50 are left, and what came back.
	a := c.send("GET", e.url("/reports"), "x-api-key", "cost", "x-cost", "50")
	back := time.Since(start)
	if a.status != http.StatusOK {
		t.Errorf("status of a cost of 50 = %d, want 200", a.status)
	}
	mustBeWithin(t, a, "x-ratelimit-remaining", 20, 20+int(back/perToken))
	mustBeWithin(t, a, "x-ratelimit-reset", seconds(80*perToken-back), seconds(80*perToken))

	// It has to wait for the 40 tokens that it lacks, and takes none of the 20.
	a = c.send("GET", e.url("/reports"), "x-api-key", "cost", "x-cost", "60")
	back = time.Since(start)
	if a.status != http.StatusTooManyRequests {
		t.Errorf("status of a cost of 60 = %d, want 429", a.status)
	}
	mustBeWithin(t, a, "x-ratelimit-remaining", 20, 20+int(back/perToken))
	mustBeWithin(t, a, "x-ratelimit-reset", seconds(40*perToken-back), seconds(40*perToken))
	mustBeWithin(t, a, "retry-after", seconds(40*perToken-back), seconds(40*perToken))
	if a := c.send("GET", e.url("/reports"), "x-api-key", "cost", "x-cost", "20"); a.status != http.StatusOK {
		t.Errorf("status of a cost of 20 = %d, want 200", a.status)
	}

	// More than the bucket holds never passes, not even from a full one: the time until it
	// is full is none.
	if got, want := c.send("GET", e.url("/reports"), "x-api-key", "cost-2", "x-cost", "101").limits(),
		"429 | 100, 100;w=60, 50;w=1 | 100 | 0 | 1 | true"; got != want {
		t.Errorf("answer to a cost of 101 = %q, want %q", got, want)
	}
	for _, cost := range []string{"0", "-1", "1.5", "much", ""} {
		if a := c.send("GET", e.url("/reports"), "x-api-key", "cost", "x-cost", cost); a.status != http.StatusBadRequest {
			t.Errorf("status of a cost of %q = %d, want 400", cost, a.status)
		}
	}
}

// testUsage asks before and charges after the answer: 2100 tokens an hour, and 1000 that
// each answer turns out to have cost. The third one goes into debt.
func testUsage(t *testing.T, e *edge, s *sluice) {
	t.Helper()
	const perToken = time.Hour / 2100
	c, rls := newClient(t), s.client(t)
	budget := descriptor("api_key", "usage", "meter", "model-tokens")
	budget.HitsAddend = wrapperspb.UInt64(0)
	start := time.Now()
	for i, left := range []uint32{1100, 100, 0} {
		if a := c.send("POST", e.url("/v1/chat"), "x-api-key", "usage"); a.status != http.StatusOK {
			t.Fatalf("status of answer %d = %d, want 200", i+1, a.status)
		}
		// The charge is under way while the client has its answer already.
		eventually(t, patience, "the charge", func() error {
			status := ask(t, rls, edgeRequest(budget)).GetStatuses()[0]
			back := uint32(time.Since(start) / perToken)
			if got := status.GetLimitRemaining(); got < left || got > left+back {
				return fmt.Errorf("remaining = %d, want %d to %d", got, left, left+back)
			}
			return nil
		})
	}
	status := ask(t, rls, edgeRequest(budget)).GetStatuses()[0]
	if status.GetCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("code after the third charge = %v, want OVER_LIMIT", status.GetCode())
	}

	// 900 are owed, and one more has to be there.
	a := c.send("POST", e.url("/v1/chat"), "x-api-key", "usage")
	back := time.Since(start)
	if a.status != http.StatusTooManyRequests {
		t.Errorf("status of answer 4 = %d, want 429", a.status)
	}
	mustBeWithin(t, a, "retry-after", seconds(901*perToken-back), seconds(901*perToken))
	mustBeWithin(t, a, "x-ratelimit-remaining", 0, 0)
}

// seconds rounds up, as all waits that a client sees are.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// mustBeWithin checks a header that has to be there once, with a whole number.
func mustBeWithin(t *testing.T, a answer, header string, lo, hi int) {
	t.Helper()
	values := a.header.Values(header)
	if len(values) != 1 {
		t.Errorf("%s = %q, want one value from %d to %d", header, values, lo, hi)
		return
	}
	n, err := strconv.Atoi(values[0])
	if err == nil {
		err = within(header, n, lo, hi)
	}
	if err != nil {
		t.Error(err)
	}
}
