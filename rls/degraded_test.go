package rls_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls"
)

const failing = `
domain: shop
descriptors:
  - key: own
    rate_limit: {unit: second, requests_per_unit: 3}
  - key: share
    rate_limit: {unit: second, requests_per_unit: 3, on_failure: local}
  - key: open
    rate_limit: {unit: second, requests_per_unit: 3, on_failure: allow}
  - key: shut
    rate_limit: {unit: second, requests_per_unit: 3, on_failure: deny}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 3, on_failure: deny}
  - key: banned
    rate_limit: {unit: minute, requests_per_unit: 0}
`

// standIn answers as a store that is away and has something to stand in for it: the local
// share is used up by a cost of more than 1.
type standIn struct{}

func (standIn) Take(_ context.Context, takes []backend.Take, dst []backend.Decision) error {
	for i, t := range takes {
		switch {
		case t.OnFailure == backend.FailAllow:
			dst[i] = backend.Decision{OK: true, Source: backend.DegradedAllow}
		case t.OnFailure == backend.FailDeny:
			dst[i] = backend.Decision{Wait: 1e9, Full: 1e9, Source: backend.DegradedDeny}
		case t.Hits > 1:
			dst[i] = backend.Decision{Wait: 2e9, Full: 2e9, Source: backend.LocalShare}
		default:
			dst[i] = backend.Decision{OK: true, Charged: 1, Full: 1e9, Source: backend.LocalShare}
		}
	}
	return nil
}

func TestWhatStandsInForTheStoreIsAnsweredAndCounted(t *testing.T) {
	for _, tt := range []struct{ call, want, reasons string }{
		{"shop: own=x", "OK: OK 0 in 1s", "ok local_share"},
		{"shop: share=x", "OK: OK 0 in 1s", "ok local_share"},
		{"shop: share=x ^2", "OVER_LIMIT: OVER_LIMIT 0 in 2s", "over_limit local_share"},
		{"shop: open=x ^2", "OK: OK", "ok degraded_allow"},
		{"shop: open=x ^0", "OK: OK", "ok degraded_allow"},
		{"shop: shut=x", "OVER_LIMIT: OVER_LIMIT 0 in 1s", "over_limit degraded_deny"},
		{"shop: trial=x", "OK: OK 0 in 1s", "ok shadow"},
		{"shop: open=x & banned=x", "OVER_LIMIT: OK, OVER_LIMIT 0 in 1m0s", "ok degraded_allow, over_limit blocked"},
	} {
		rules := load(t, failing)
		reg := prometheus.NewRegistry()
		s := rls.New(standIn{}, func() *descriptors.Rules { return rules }, rls.Options{Registerer: reg, DynamicMetadata: true})
		answer := decide(t, s, tt.call)
		if got := formatAnswer(answer); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.call, got, tt.want)
		}
		for reason := range strings.SplitSeq(tt.reasons, ", ") {
			if n := decided(t, reg, reason); n != 1 {
				t.Errorf("%s: %v decisions are counted as %s, want 1", tt.call, n, reason)
			}
		}
		first := answer.GetDynamicMetadata().GetFields()["descriptors"].GetListValue().GetValues()[0]
		if got := first.GetStructValue().GetFields()["degraded"].GetStringValue(); got == "" {
			t.Errorf("%s: the metadata do not say why", tt.call)
		}
	}
}

// decided is the number of decisions with a decision and a reason.
func decided(t *testing.T, reg *prometheus.Registry, want string) (n float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "ratelimit_decisions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["decision"]+" "+labels["reason"] == want {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// FAILURE_MODE=error leaves it to Envoy's failure_mode_deny.
func TestWithoutADecisionTheCallIsUnavailable(t *testing.T) {
	rules := load(t, failing)
	s := rls.New(brokenStore{}, func() *descriptors.Rules { return rules }, rls.Options{})
	data, err := proto.Marshal(parseCall(t, "shop: own=x & banned=x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Decide(t.Context(), data); status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "away") {
		t.Errorf("err = %v, want Unavailable without the store's own text", err)
	}
	if code, _ := s.DecideJSON(t.Context(), []byte(`{"domain":"shop","descriptors":[{"entries":[{"key":"own"}]}]}`)); code != http.StatusInternalServerError {
		t.Errorf("DecideJSON = %d, want 500", code)
	}
}
