package descriptors_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/descriptors"
)

// tenants is a domain of n tenants with one route each, and rules for all others.
func tenants(n int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&b, "- key: api_key\n  value: shop-%d\n  descriptors:\n", i)
		b.WriteString("  - key: route\n    value: POST /orders\n    rate_limit: {unit: second, requests_per_unit: 100, burst: 200}\n")
	}
	b.WriteString("- key: api_key\n  descriptors:\n  - key: route\n    rate_limit: {unit: second, requests_per_unit: 10}\n")
	return b.String()
}

// wildcards is a list of n wildcards.
func wildcards(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "path \"/v%d/*\"\n", i)
	}
	return tree(b.String())
}

func BenchmarkMatch(b *testing.B) {
	large := rulesOf(b, tenants(100_000))
	for _, bench := range []struct {
		name    string
		rules   *descriptors.Rules
		request []string
		want    string
	}{
		{"exact/1000rules", rulesOf(b, tenants(1000)), []string{"api_key=shop-700", "route=POST /orders"}, "api_key=shop-700 > route=POST /orders"},
		{"exact/100000rules", large, []string{"api_key=shop-70000", "route=POST /orders"}, "api_key=shop-70000 > route=POST /orders"},
		{"default/100000rules", large, []string{"api_key=other", "route=POST /orders"}, "api_key > route"},
		{"miss/100000rules", large, []string{"api_key=shop-70000", "route=GET /"}, ""},
		{"wildcard/10rules", rulesOf(b, wildcards(10)), []string{"path=/v7/x"}, "path=/v7/*"},
		{"wildcard/1000rules", rulesOf(b, wildcards(1000)), []string{"path=/v700/x"}, "path=/v700/*"},
		{"wildcard/100000rules", rulesOf(b, wildcards(100_000)), []string{"path=/v70000/x"}, "path=/v70000/*"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			d, entries := bench.rules.Domain("d"), request(bench.request...)
			got := ""
			if r := d.Match(entries); r != nil {
				got = r.Path
			}
			if got != bench.want {
				b.Fatalf("Match(%q) = %q, want %q", bench.request, got, bench.want)
			}
			b.ReportAllocs()
			for b.Loop() {
				d.Match(entries)
			}
		})
	}
}

func BenchmarkAppendKey(b *testing.B) {
	entries := request("api_key=shop-a", "route=POST /orders")
	for _, hash := range []bool{false, true} {
		b.Run(fmt.Sprintf("hash=%v", hash), func(b *testing.B) {
			r := rulesOf(b, tenants(1), descriptors.Options{HashKeys: hash}).Domain("d").Match(entries)
			if r == nil {
				b.Fatal("no rule")
			}
			dst := make([]byte, 0, 256)
			b.ReportAllocs()
			for b.Loop() {
				dst = r.AppendKey(dst[:0], entries)
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%drules", n), func(b *testing.B) {
			data := []byte(tenants(n))
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				rules, problems := descriptors.NewLoader(descriptors.Options{}).Load([]descriptors.Source{{Name: "a", Data: data}})
				if rules.Len() != n+1 || len(problems) > 0 {
					b.Fatalf("%d rules, %v", rules.Len(), problems)
				}
			}
		})
	}
}

// maxLoad is a bound that only an algorithm of the wrong order breaks.
const maxLoad = 10 * time.Second

// A domain of many rules loads in seconds, see BenchmarkLoad.
func TestLoadLarge(t *testing.T) {
	for name, text := range map[string]string{"tenants": tenants(5_000), "wildcards": wildcards(5_000)} {
		start := time.Now()
		rules := rulesOf(t, text)
		if took := time.Since(start); took > maxLoad || rules.Len() < 5_000 {
			t.Errorf("%s: %d rules in %v", name, rules.Len(), took)
		}
		_ = rules.Hints()
	}
}
