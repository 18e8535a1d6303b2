package rls_test

import (
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls"
)

const answers = `
domain: shop
descriptors:
  - key: plain
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: quiet
    rate_limit: {unit: minute, requests_per_unit: 1, retry_after: off}
  - key: fixed
    rate_limit: {unit: second, requests_per_unit: 1, retry_after: 120, body: '{"error":"zu viele Anfragen"}'}
  - key: long
    rate_limit: {unit: hour, requests_per_unit: 1, body: come back later}
  - key: wide
    rate_limit: {unit: second, requests_per_unit: 10, burst: 50}
  - key: banned
    rate_limit: {unit: second, requests_per_unit: 0}
`

// headers writes the response headers of an answer, one "name: value" each.
func headers(r *rlsv3.RateLimitResponse) []string {
	var all []string
	for _, h := range r.GetResponseHeadersToAdd() {
		all = append(all, h.GetKey()+": "+h.GetValue())
	}
	return all
}

// R101: Retry-After is at least a second, and no less than the wait.
func TestHeadersAndBodyOfADenial(t *testing.T) {
	f := func(opts rls.Options, calls []string, want []string, body string) {
		t.Helper()
		s := newService(t, answers, opts)
		var last *rlsv3.RateLimitResponse
		for _, c := range calls {
			last = decide(t, s, c)
		}
		if diff := cmp.Diff(want, headers(last)); diff != "" {
			t.Errorf("%q: headers (-want +got):\n%s", calls, diff)
		}
		if got := string(last.GetRawBody()); got != body {
			t.Errorf("%q: body %q, want %q", calls, got, body)
		}
	}
	none := rls.Options{}
	f(none, []string{"shop: plain=x"}, nil, "")
	f(none, []string{"shop: plain=x", "shop: plain=x"}, []string{"Retry-After: 60"}, "")
	f(none, []string{"shop: quiet=x", "shop: quiet=x"}, nil, "")
	f(none, []string{"shop: fixed=x", "shop: fixed=x"}, []string{"Retry-After: 120", "content-type: application/json"}, `{"error":"zu viele Anfragen"}`)
	f(none, []string{"shop: plain=x & long=x", "shop: plain=x & long=x"}, []string{"Retry-After: 3600", "content-type: text/plain; charset=utf-8"}, "come back later")
	f(none, []string{"shop: banned=x"}, []string{"Retry-After: 1"}, "")
	f(none, []string{"shop: wide=x #51"}, []string{"Retry-After: 1"}, "") // its reset is 0 s
	f(rls.Options{Shadow: true}, []string{"shop: plain=x", "shop: plain=x"}, nil, "")

	named := rls.Options{Headers: &rls.HeaderNames{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}}
	f(named, []string{"shop: none=x"}, nil, "")
	f(named, []string{"shop: wide=x"}, []string{"RateLimit-Limit: 10", "RateLimit-Remaining: 49", "RateLimit-Reset: 1"}, "")
	f(named, []string{"shop: wide=x & plain=x"}, []string{"RateLimit-Limit: 1", "RateLimit-Remaining: 0", "RateLimit-Reset: 60"}, "")
	f(named, []string{"shop: plain=x & long=x", "shop: plain=x & long=x"},
		[]string{"Retry-After: 3600", "content-type: text/plain; charset=utf-8", "RateLimit-Limit: 1", "RateLimit-Remaining: 0", "RateLimit-Reset: 3600"}, "come back later")
}

func TestDynamicMetadata(t *testing.T) {
	const rules = `
domain: shop
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 5}
    metadata: {tier: gold, nested: {x: 1, list: [1, 2]}}
  - key: b
    rate_limit: {unit: minute, requests_per_unit: 5}
    metadata: {tier: silver, nested: {y: two, list: [3]}, only: b}
  - key: banned
    rate_limit: {unit: minute, requests_per_unit: 0}
    metadata: {never: true}
`
	s := newService(t, rules, rls.Options{DynamicMetadata: true})
	want := map[string]any{
		"domain":     "shop",
		"hitsAddend": 2.0,
		"descriptors": []any{
			map[string]any{"entries": []any{"a=1"}},
			map[string]any{"entries": []any{`b=\xff`}, "hitsAddend": 0.0},
			map[string]any{"entries": []any{"c=3"}},
		},
		"metadata": map[string]any{
			"tier": "gold", "only": "b",
			"nested": map[string]any{"x": 1.0, "y": "two", "list": []any{1.0, 2.0}},
		},
	}
	for range 2 { // a merge must not be written back into the rules
		got := decideRaw(t, s, "shop", 2, [][]string{{"a", "1"}, {"b", "\xff"}, {"c", "3"}}, 1)
		if diff := cmp.Diff(want, got.GetDynamicMetadata().AsMap()); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
	}
	got := decide(t, s, "shop: b=1").GetDynamicMetadata().AsMap()["metadata"]
	if diff := cmp.Diff(map[string]any{"tier": "silver", "nested": map[string]any{"y": "two", "list": []any{3.0}}, "only": "b"}, got); diff != "" {
		t.Errorf("metadata of b alone (-want +got):\n%s", diff)
	}
	if got := decide(t, s, "shop: banned=1").GetDynamicMetadata().AsMap(); got["metadata"] != nil {
		t.Errorf("metadata of a denied rule = %v", got["metadata"])
	}
	list := decide(t, s, "shop: a=1 @5/HOUR").GetDynamicMetadata().GetFields()["descriptors"].GetListValue()
	limit := list.GetValues()[0].GetStructValue().GetFields()["limit"].GetStringValue()
	if !strings.Contains(limit, "HOUR") || !strings.Contains(limit, "5") {
		t.Errorf("limit = %q", limit)
	}
}

func TestRefusedRequests(t *testing.T) {
	rules := load(t, answers)
	s := rls.New(memstore.New(memstore.Options{}), func() *descriptors.Rules { return rules }, rls.Options{})
	f := func(data, want string) {
		t.Helper()
		answer, err := s.Decide(t.Context(), []byte(data))
		if answer != nil || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "InvalidArgument") {
			t.Errorf("Decide(%q) = %v, %v, want an InvalidArgument with %q", data, answer, err, want)
		}
	}
	f("", "domain must not be empty")
	f("\x12\x00", "domain must not be empty")
	f("\x0a\x04shop", "descriptor list must not be empty")
	f("\x0a\x40shop", "malformed")
	f("\x0a\x04shop"+strings.Repeat("\x12\x00", 1025), "more than 1024 descriptors")
}
