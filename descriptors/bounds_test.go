package descriptors_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/descriptors"
)

// A small file can't fill the memory by repeating a long text.
func TestUnfolding(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	aliases := strings.Repeat("*long,", 3000)
	var parents strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&parents, "- {key: p%d, descriptors: *list}\n", i)
	}
	f := func(name, yaml, want string) {
		t.Helper()
		rules, problems := descriptors.NewLoader(descriptors.Options{}).Load([]descriptors.Source{{Name: "a", Data: []byte(yaml)}})
		found := slices.ContainsFunc(problems, func(p descriptors.Problem) bool { return strings.Contains(p.Message, want) })
		if rules.Len() != 0 || !found {
			t.Errorf("%s: %d rules, problems %.300v; want one with %q", name, rules.Len(), problems, want)
		}
	}
	const rule = "rate_limit: {unit: second, requests_per_unit: 1"
	f("metadata", "domain: d\ndescriptors:\n- key: &long "+long+"\n- key: b\n  metadata: {a: ["+aliases+"]}\n", "unfold to more than")
	f("a body", "domain: d\ndescriptors:\n- key: &long "+long+"\n- key: b\n  "+rule+", body: {json: ["+aliases+"]}}\n", "unfold to more than")
	f("a short body", "domain: d\ndescriptors:\n- key: &long "+long[:100]+"\n- key: b\n  "+rule+", body: {json: ["+aliases+"]}}\n", "as JSON it is above 65536 bytes")
	f("paths", "domain: d\ndescriptors:\n- key: first\n  descriptors: &list\n  - {key: "+long+", "+rule+"}}\n"+parents.String(), "unfold to more than")
}

func TestOverrideLimit(t *testing.T) {
	f := func(a backend.Algorithm, requests uint32, unit descriptors.Unit, multiplier uint32, want backend.Limit) {
		t.Helper()
		if got := descriptors.OverrideLimit(a, requests, unit, multiplier); got != want {
			t.Errorf("OverrideLimit(%d, %d, %v, %d) = %+v, want %+v", a, requests, unit, multiplier, got, want)
		}
	}
	f(backend.TokenBucket, 5, descriptors.Minute, 0, backend.Limit{Requests: 5, Period: time.Minute, Burst: 5})
	f(backend.TokenBucket, 5, descriptors.Year, 4294967295, backend.Limit{Requests: 5, Period: descriptors.MaxPeriod, Burst: 5})
	f(backend.LeakyBucket, 3000, descriptors.Second, 1, backend.Limit{Algorithm: backend.LeakyBucket, Requests: 3000, Period: time.Second, Burst: 30})
	f(backend.SlidingLog, 100000, descriptors.Hour, 2, backend.Limit{Algorithm: backend.SlidingLog, Requests: 100000, Period: 2 * time.Hour, Burst: 100000})
}
