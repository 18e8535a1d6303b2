//go:build integration

package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-rls/sluice/internal/proc"
)

// statuses returns an answer in short: the overall code, then for each descriptor its
// code, limit, remaining and reset.
func statuses(r *rlsv3.RateLimitResponse) string {
	s := []string{r.GetOverallCode().String()}
	for _, one := range r.GetStatuses() {
		text := one.GetCode().String()
		if limit := one.GetCurrentLimit(); limit != nil {
			text += fmt.Sprintf(" %d/%v", limit.GetRequestsPerUnit(), limit.GetUnit())
		}
		s = append(s, fmt.Sprintf("%s %d %v", text, one.GetLimitRemaining(), one.GetDurationUntilReset().AsDuration()))
	}
	return strings.Join(s, " | ")
}

// Calls as Envoy makes them, on each store, with answers to the last number.
func TestCalls(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		testCalls(t, startSluice(t, exampleRules, nil))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		redis, _ := proc.Redis(t)
		testCalls(t, startSluice(t, exampleRules, settings{"REDIS_URL": redis}))
	})
	// Several descriptors of a call lie on several nodes there.
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		nodes := strings.Join(proc.RedisCluster(t, 3), ",")
		testCalls(t, startSluice(t, exampleRules, settings{"REDIS_URL": nodes, "REDIS_TYPE": "CLUSTER"}))
	})
}

func testCalls(t *testing.T, s *sluice) {
	t.Helper()
	c := s.client(t)
	// A bucket of 2100 tokens an hour gives one back in 1.7s, one of 100 a minute in 0.6s:
	// the steps of one test are done before.
	f := func(name, want string, r *rlsv3.RateLimitRequest) {
		t.Helper()
		if got := statuses(ask(t, c, r)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	hits := func(d *commonv3.RateLimitDescriptor, n uint64) *commonv3.RateLimitDescriptor {
		d.HitsAddend = wrapperspb.UInt64(n)
		return d
	}
	budget := func(key string) *commonv3.RateLimitDescriptor {
		return descriptor("api_key", key, "meter", "model-tokens")
	}

	f("statuses in the order of the descriptors", "OK | OK 0 0s | OK 10/SECOND 19 1s | OK 0 0s | OK 5/SECOND 9 1s | OK 50/SECOND 99 1s",
		edgeRequest(descriptor("nobody", "knows"), descriptor("api_key", "order", "route", "/"), &commonv3.RateLimitDescriptor{},
			descriptor("user", "order"), descriptor("api_key", "order")))
	f("an unknown domain", "OK | OK 0 0s | OK 0 0s",
		&rlsv3.RateLimitRequest{Domain: "nowhere", Descriptors: []*commonv3.RateLimitDescriptor{descriptor("a", "b"), descriptor("c", "d")}})
	f("a ban", "OVER_LIMIT | OVER_LIMIT 0/SECOND 0 1s", edgeRequest(descriptor("api_key", "stolen-key")))

	// 2100 tokens, 12s for 7 of them.
	f("the request's hits", "OK | OK 2100/HOUR 2093 12s",
		&rlsv3.RateLimitRequest{Domain: "edge", HitsAddend: 7, Descriptors: []*commonv3.RateLimitDescriptor{budget("hits-1")}})
	f("the descriptor's hits over the request's", "OK | OK 2100/HOUR 2086 24s",
		&rlsv3.RateLimitRequest{Domain: "edge", HitsAddend: 100, Descriptors: []*commonv3.RateLimitDescriptor{hits(budget("hits-2"), 14)}})
	f("a look", "OK | OK 2100/HOUR 2100 0s", edgeRequest(hits(budget("hits-3"), 0)))
	f("no hits, which is one", "OK | OK 2100/HOUR 2099 2s", edgeRequest(budget("hits-3")))
	f("the same bucket twice", "OK | OK 2100/HOUR 2086 24s | OK 2100/HOUR 2086 24s",
		edgeRequest(hits(budget("hits-4"), 7), hits(budget("hits-4"), 7)))

	// All or none: the second one can't pay, so the first one does not.
	f("a denied call", "OVER_LIMIT | OK 2100/HOUR 2100 0s | OVER_LIMIT 0/SECOND 0 1s",
		edgeRequest(hits(budget("hits-5"), 70), descriptor("api_key", "stolen-key")))
	f("it cost nothing", "OK | OK 2100/HOUR 2100 0s", edgeRequest(hits(budget("hits-5"), 0)))
	f("more than the capacity", "OVER_LIMIT | OVER_LIMIT 2100/HOUR 2100 0s", edgeRequest(hits(budget("hits-6"), 2101)))
	back := hits(budget("hits-7"), 1400)
	f("a charge", "OK | OK 2100/HOUR 700 40m0s", edgeRequest(hits(budget("hits-7"), 1400)))
	back.IsNegativeHits = true
	f("a refund up to full", "OK | OK 2100/HOUR 2100 0s", edgeRequest(back))
}

func TestCallsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	c := startSluice(t, exampleRules, nil).client(t)
	for name, r := range map[string]*rlsv3.RateLimitRequest{
		"no domain":      {Descriptors: []*commonv3.RateLimitDescriptor{descriptor("a", "b")}},
		"no descriptors": {Domain: "edge"},
	} {
		if _, err := c.ShouldRateLimit(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: error = %v, want InvalidArgument", name, err)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	s := startSluice(t, exampleRules, nil)
	c := healthv1.NewHealthClient(s.dial(t))
	for _, service := range []string{"", "ratelimit"} {
		response, err := c.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil || response.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("Check(%q) = %v, %v, want SERVING", service, response.GetStatus(), err)
		}
	}
	if _, err := c.Check(t.Context(), &healthv1.HealthCheckRequest{Service: "nosuch"}); status.Code(err) != codes.NotFound {
		t.Errorf(`Check("nosuch"): error = %v, want NotFound`, err)
	}
}

// The process ends by itself, soon and with exit code 0, while clients watch its health:
// they learn it first, and calls are answered meanwhile.
func TestTermination(t *testing.T) {
	t.Parallel()
	s := startSluice(t, exampleRules, nil)
	c := s.client(t)
	var watches []healthv1.Health_WatchClient
	for _, service := range []string{"", "ratelimit"} {
		w, err := healthv1.NewHealthClient(s.dial(t)).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		mustSay(t, w, healthv1.HealthCheckResponse_SERVING)
		watches = append(watches, w)
	}
	start := time.Now()
	s.Signal(syscall.SIGTERM)
	for _, w := range watches {
		mustSay(t, w, healthv1.HealthCheckResponse_NOT_SERVING)
	}
	ask(t, c, edgeRequest(descriptor("api_key", "late")))
	if err := endedWell(s.Process, 8*time.Second-time.Since(start)); err != nil {
		t.Errorf("end: %v, want exit code 0 within 8 seconds of SIGTERM", err)
	}
}

func mustSay(t *testing.T, w healthv1.Health_WatchClient, want healthv1.HealthCheckResponse_ServingStatus) {
	t.Helper()
	response, err := w.Recv()
	if err != nil || response.GetStatus() != want {
		t.Fatalf("Watch = %v, %v, want %v", response.GetStatus(), err, want)
	}
}

func TestReflection(t *testing.T) {
	t.Parallel()
	s := startSluice(t, exampleRules, nil)
	stream, err := reflectionv1.NewServerReflectionClient(s.dial(t)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(list); err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, service := range response.GetListServicesResponse().GetService() {
		names[service.GetName()] = true
	}
	for _, want := range []string{"envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"} {
		if !names[want] {
			t.Errorf("services = %v, want %s among them", names, want)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
}
