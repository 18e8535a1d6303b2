//go:build integration

package integration

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/internal/proc"
)

// The example as it stands, with a bucket in the process and with two replicas that
// share their buckets in Redis: a client can't tell which.
func TestEdge(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		e, all := startExample(t, 1, exampleRules, nil)
		testEdge(t, e, all)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		redis, _ := proc.Redis(t)
		e, all := startExample(t, 2, exampleRules, settings{"REDIS_URL": redis})
		testEdge(t, e, all)
	})
}

// testEdge runs its tests in parallel: each has API keys, or addresses, of its own.
func testEdge(t *testing.T, e *edge, replicas []*sluice) {
	t.Helper()
	t.Cleanup(func() { e.mustNotFail(t) })
	for name, f := range map[string]func(*testing.T, *edge){
		"a tenant's own limit":   testTenant,
		"default limits":         testDefaults,
		"no API key":             testNoKey,
		"a banned key":           testBan,
		"bytes that are no text": testOpaqueBytes,
		"user of a query":        testQuery,
		"cost of a request":      testCost,
		"raw TCP":                testTCP,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, e)
		})
	}
	t.Run("cost of an answer", func(t *testing.T) {
		t.Parallel()
		testUsage(t, e, replicas[0])
	})
}

func testTenant(t *testing.T, e *edge) {
	t.Helper()
	c := newClient(t)
	start := time.Now()
	if got, want := c.send("POST", e.url("/orders"), "x-api-key", "shop-a").limits(),
		"200 | 100, 100;w=1, 500;w=1 | 199 | 1 | - | -"; got != want {
		t.Errorf("first answer = %q, want %q", got, want)
	}
	all := c.drain(400, "POST", e.url("/orders"), "x-api-key", "shop-a")
	all.passed++
	all.elapsed = time.Since(start)
	all.obeys(t, 200, 100)
	if got, want := all.denial.limits(), "429 | 100, 100;w=1, 500;w=1 | 0 | 1 | 1 | true"; got != want {
		t.Errorf("a denial = %q, want %q", got, want)
	}
	// Nobody else pays for it, nor does this tenant on other routes.
	if got, want := c.send("POST", e.url("/orders"), "x-api-key", "shop-b").limits(),
		"200 | 10, 10;w=1, 50;w=1 | 19 | 1 | - | -"; got != want {
		t.Errorf("another tenant's answer = %q, want %q", got, want)
	}
	if got, want := c.send("GET", e.url("/orders"), "x-api-key", "shop-a").limits(),
		"200 | 10, 10;w=1, 500;w=1 | 19 | 1 | - | -"; got != want {
		t.Errorf("answer on another route = %q, want %q", got, want)
	}
}

func testDefaults(t *testing.T, e *edge) {
	t.Helper()
	c := newClient(t)
	all := c.drain(60, "GET", e.url("/anything?at=all"), "x-api-key", "default-1")
	all.obeys(t, 20, 10)
	if got, want := all.denial.limits(), "429 | 10, 10;w=1, 50;w=1 | 0 | 1 | 1 | true"; got != want {
		t.Errorf("a denial = %q, want %q", got, want)
	}
	// Paths that the configuration does not name share one bucket.
	if other := c.drain(40, "GET", e.url("/something/else"), "x-api-key", "default-1"); other.passed >= 20 {
		t.Errorf("%d passed on another path, want fewer than a bucket of its own has", other.passed)
	}
	newClient(t).drain(60, "POST", e.url("/orders"), "x-api-key", "default-2").obeys(t, 20, 10)
}

func testNoKey(t *testing.T, e *edge) {
	t.Helper()
	c := newClient(t)
	for _, a := range []answer{
		c.send("POST", e.url("/orders")),
		c.send("GET", e.url("/search?user=bob"), "x-api-key", ""),
	} {
		if got, want := a.limits(), "401 | - | - | - | - | -"; got != want {
			t.Errorf("answer without a key = %q, want %q", got, want)
		}
	}
	if a := c.send("GET", e.url("/healthz")); a.status != http.StatusOK {
		t.Errorf("status of /healthz = %d, want 200 without a key", a.status)
	}
}

func testBan(t *testing.T, e *edge) {
	t.Helper()
	c := newClient(t)
	for range 2 {
		if got, want := c.send("GET", e.url("/"), "x-api-key", "stolen-key").limits(),
			"429 | 0, 0;w=1 | 0 | 1 | 1 | true"; got != want {
			t.Errorf("answer = %q, want %q", got, want)
		}
	}
}

// Envoy sends header bytes as they came. A server that refuses what is not UTF-8 lets
// such a client, and all that its call would have limited, through.
func testOpaqueBytes(t *testing.T, e *edge) {
	t.Helper()
	c := newClient(t)
	c.drain(60, "GET", e.url("/"), "x-api-key", "\xff\xfe").obeys(t, 20, 10)
	c.drain(60, "GET", e.url("/search?user=%ff%fe"), "x-api-key", "opaque").obeys(t, 10, 5)
	// Other bytes, another bucket.
	if a := c.send("GET", e.url("/"), "x-api-key", "\xff\xff"); a.status != http.StatusOK {
		t.Errorf("status of another key = %d, want 200", a.status)
	}
	if a := c.send("GET", e.url("/search?user=%00"), "x-api-key", "opaque"); a.status != http.StatusOK {
		t.Errorf("status of another user = %d, want 200", a.status)
	}
}

func testQuery(t *testing.T, e *edge) {
	t.Helper()
	c := newClient(t)
	all := c.drain(40, "GET", e.url("/search?user=bob"), "x-api-key", "query-1")
	all.obeys(t, 10, 5)
	if got, want := all.denial.limits(), "429 | 5, 5;w=1, 10;w=1, 50;w=1 | 0 | 1 | 1 | true"; got != want {
		t.Errorf("a denial = %q, want %q", got, want)
	}
	if other := c.drain(20, "GET", e.url("/search?user=b%6fb"), "x-api-key", "query-2"); other.passed >= 10 {
		t.Errorf("%d of another key's searches for the same user passed, want fewer than a bucket of its own has", other.passed)
	}
	// The denials cost the key nothing: of its 20 tokens for this route, only passes took.
	mustBeWithin(t, c.send("GET", e.url("/search"), "x-api-key", "query-1"), "x-ratelimit-remaining", max(0, 19-all.passed), 19)
	if got, want := c.send("GET", e.url("/search"), "x-api-key", "query-3").limits(),
		"200 | 10, 10;w=1, 50;w=1 | 19 | 1 | - | -"; got != want {
		t.Errorf("answer without a user = %q, want %q", got, want)
	}
}
