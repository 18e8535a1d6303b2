package rls_test

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls"
)

// R14, R34, R45, R50, R51: a series for each rule from the start, one for what no rule
// decided, shadow denials on each call, hits asked apart from hits charged.
func TestEveryDescriptorCountsOnce(t *testing.T) {
	const rules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: banned
    rate_limit: {unit: hour, requests_per_unit: 0}
  - key: free
    rate_limit: {unlimited: true}
`
	reg := prometheus.NewPedanticRegistry()
	s := newService(t, rules, rls.Options{Registerer: reg})
	for _, call := range []string{
		"shop: user=a ^7",
		"shop: user=a & trial=a ^2",         // both charged; user is near its limit
		"shop: user=a & free=x & none=x ^5", // denied: 5 asked
		"shop: user=b & banned=x",           // denied by another
		"shop: trial=a",
		"shop: user=a #-1",
		"shop: user=c @1/HOUR",
		"shop: user=c @1/HOUR",
		"else: user=a & user=b",
	} {
		decide(t, s, call)
	}
	want := `
# HELP ratelimit_decisions_total Descriptors decided, by the rule that decided them. An unknown domain and no rule are empty labels.
# TYPE ratelimit_decisions_total counter
ratelimit_decisions_total{decision="ok",domain="",reason="switch",rule=""} 0
ratelimit_decisions_total{decision="ok",domain="",reason="unknown_domain",rule=""} 2
ratelimit_decisions_total{decision="over_limit",domain="",reason="switch",rule=""} 0
ratelimit_decisions_total{decision="ok",domain="shop",reason="call_denied",rule="user"} 1
ratelimit_decisions_total{decision="ok",domain="shop",reason="override",rule=""} 1
ratelimit_decisions_total{decision="ok",domain="shop",reason="shadow",rule="trial"} 1
ratelimit_decisions_total{decision="ok",domain="shop",reason="unlimited",rule="free"} 1
ratelimit_decisions_total{decision="ok",domain="shop",reason="unmatched",rule=""} 1
ratelimit_decisions_total{decision="ok",domain="shop",reason="within",rule="banned"} 0
ratelimit_decisions_total{decision="ok",domain="shop",reason="within",rule="free"} 0
ratelimit_decisions_total{decision="ok",domain="shop",reason="within",rule="trial"} 1
ratelimit_decisions_total{decision="ok",domain="shop",reason="within",rule="user"} 3
ratelimit_decisions_total{decision="over_limit",domain="shop",reason="blocked",rule="banned"} 1
ratelimit_decisions_total{decision="over_limit",domain="shop",reason="exhausted",rule="banned"} 0
ratelimit_decisions_total{decision="over_limit",domain="shop",reason="exhausted",rule="free"} 0
ratelimit_decisions_total{decision="over_limit",domain="shop",reason="exhausted",rule="trial"} 0
ratelimit_decisions_total{decision="over_limit",domain="shop",reason="exhausted",rule="user"} 1
ratelimit_decisions_total{decision="over_limit",domain="shop",reason="override",rule=""} 1
# HELP ratelimit_hits_total Hits asked of a rule, and hits that its buckets were charged.
# TYPE ratelimit_hits_total counter
ratelimit_hits_total{domain="shop",kind="asked",rule="banned"} 1
ratelimit_hits_total{domain="shop",kind="asked",rule="free"} 0
ratelimit_hits_total{domain="shop",kind="asked",rule="trial"} 3
ratelimit_hits_total{domain="shop",kind="asked",rule="user"} 15
ratelimit_hits_total{domain="shop",kind="charged",rule="banned"} 0
ratelimit_hits_total{domain="shop",kind="charged",rule="free"} 0
ratelimit_hits_total{domain="shop",kind="charged",rule="trial"} 1
ratelimit_hits_total{domain="shop",kind="charged",rule="user"} 9
# HELP ratelimit_near_limit_total Hits charged to buckets that were then used beyond the near-limit ratio.
# TYPE ratelimit_near_limit_total counter
ratelimit_near_limit_total{domain="shop",rule="banned"} 0
ratelimit_near_limit_total{domain="shop",rule="free"} 0
ratelimit_near_limit_total{domain="shop",rule="trial"} 1
ratelimit_near_limit_total{domain="shop",rule="user"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "ratelimit_decisions_total", "ratelimit_hits_total", "ratelimit_near_limit_total"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("lint: %s: %s", p.Metric, p.Text)
	}
}

func TestCountersOutliveAReload(t *testing.T) {
	const with = "domain: shop\ndescriptors:\n  - {key: a, rate_limit: {unit: hour, requests_per_unit: 5}}\n  - {key: b, rate_limit: {unit: hour, requests_per_unit: 5}}\n"
	const without = "domain: shop\ndescriptors:\n  - {key: b, rate_limit: {unit: hour, requests_per_unit: 7}}\n"
	var current atomic.Pointer[descriptors.Rules]
	current.Store(load(t, with))
	reg := prometheus.NewPedanticRegistry()
	s := rls.New(memstore.New(memstore.Options{}), current.Load, rls.Options{Registerer: reg})
	decide(t, s, "shop: a=1")
	decide(t, s, "shop: b=1")
	current.Store(load(t, without))
	decide(t, s, "shop: b=1")
	want := `
# HELP ratelimit_hits_total Hits asked of a rule, and hits that its buckets were charged.
# TYPE ratelimit_hits_total counter
ratelimit_hits_total{domain="shop",kind="asked",rule="b"} 2
ratelimit_hits_total{domain="shop",kind="charged",rule="b"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "ratelimit_hits_total"); err != nil {
		t.Error(err)
	}
}

// R106: the limit itself is a metric.
func TestTheLimitIsAMetric(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	newService(t, "domain: shop\ndescriptors:\n"+
		"  - {key: a, rate_limit: {unit: minute, requests_per_unit: 30, burst: 7}}\n"+
		"  - {key: b, rate_limit: {unit: minute, requests_per_unit: 0}}\n"+
		"  - {key: c, rate_limit: {unlimited: true}}\n", rls.Options{Registerer: reg})
	want := `
# HELP ratelimit_rule_burst_tokens Tokens that a bucket of the rule holds at most.
# TYPE ratelimit_rule_burst_tokens gauge
ratelimit_rule_burst_tokens{domain="shop",rule="a"} 7
ratelimit_rule_burst_tokens{domain="shop",rule="b"} 0
# HELP ratelimit_rule_tokens_per_second Tokens that come back to a bucket of the rule each second: its limit.
# TYPE ratelimit_rule_tokens_per_second gauge
ratelimit_rule_tokens_per_second{domain="shop",rule="a"} 0.5
ratelimit_rule_tokens_per_second{domain="shop",rule="b"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "ratelimit_rule_burst_tokens", "ratelimit_rule_tokens_per_second"); err != nil {
		t.Error(err)
	}
}

// R104: values show in metrics only where a rule asks for them, and are bounded.
func TestSeriesOfValuesAreBounded(t *testing.T) {
	const rules = `
domain: shop
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 10}
  - key: route
    value: /a
    descriptors:
      - key: plan
        rate_limit: {unit: hour, requests_per_unit: 10}
  - key: all
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 10}
`
	reg := prometheus.NewPedanticRegistry()
	s := newService(t, rules, rls.Options{Registerer: reg})
	for _, call := range []string{"shop: route=/b,user=u1", "shop: route=/b,user=u2", "shop: route=/c,user=u1 ^11", "shop: route=/a,plan=p"} {
		decide(t, s, call)
	}
	for i := range 1003 {
		decide(t, s, "shop: all="+strconv.Itoa(i))
	}
	decide(t, s, "shop: all=7")
	got := make(map[string]float64)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			got[f.GetName()+" "+labels["rule"]+" "+labels["reason"]+labels["kind"]] = m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"ratelimit_decisions_total route=/b > user within":    2,
		"ratelimit_decisions_total route=/c > user exhausted": 1,
		"ratelimit_decisions_total route=/a > plan within":    1,
		"ratelimit_decisions_total all=7 within":              2,
		"ratelimit_decisions_total all=999 within":            1,
		"ratelimit_decisions_total all other within":          3,
		"ratelimit_series_overflow_total all ":                3,
		"ratelimit_series_overflow_total route > user ":       0,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s = %v (%v), want %v", name, n, ok, want)
		}
	}
	if n, ok := got["ratelimit_decisions_total all=1000 within"]; ok {
		t.Errorf("a series above the bound: %v", n)
	}
}

// Two rules whose paths read alike have one series with the sum of both.
func TestRulesThatReadAlikeShareASeries(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := newService(t, "domain: shop\ndescriptors:\n"+
		"  - {key: 'a=b', rate_limit: {unit: hour, requests_per_unit: 30}}\n"+
		"  - {key: a, value: b, rate_limit: {unit: hour, requests_per_unit: 10}}\n", rls.Options{Registerer: reg})
	data := rawRequest("shop", 0, [][]string{{"a=b", "x"}, {"a", "b"}}, -1)
	if _, err := s.Decide(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP ratelimit_hits_total Hits asked of a rule, and hits that its buckets were charged.
# TYPE ratelimit_hits_total counter
ratelimit_hits_total{domain="shop",kind="asked",rule="a=b"} 2
ratelimit_hits_total{domain="shop",kind="charged",rule="a=b"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "ratelimit_hits_total"); err != nil {
		t.Error(err)
	}
}
