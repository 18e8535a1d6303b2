package descriptors_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-rls/sluice/descriptors"
)

// The numbers and names of units are those of Envoy's RateLimitResponse.RateLimit.Unit.
func TestUnitIsEnvoys(t *testing.T) {
	for number, name := range rlsv3.RateLimitResponse_RateLimit_Unit_name {
		if got := descriptors.Unit(number).String(); got != name {
			t.Errorf("Unit(%d) = %q, want %q", number, got, name)
		}
	}
	if u := descriptors.Unit(200); u.String() != "UNKNOWN" || u.Duration() != 0 {
		t.Errorf("Unit(200) = %v, %v", u, u.Duration())
	}
}

// R25: week, month and year are units, in any letter case. R26: a multiplier makes 30
// seconds or 5 minutes of them.
func TestUnits(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct {
		unit       string
		multiplier int
		want       time.Duration
	}{
		{"second", 1, time.Second},
		{"Minute", 1, time.Minute},
		{"hOUR", 1, time.Hour},
		{"DAY", 1, day},
		{"week", 1, 7 * day},
		{"MONTH", 1, 30 * day},
		{"Year", 1, 365 * day},
		{"second", 30, 30 * time.Second},
		{"minute", 5, 5 * time.Minute},
		{"year", 10, descriptors.MaxPeriod},
	} {
		rules := rulesOf(t, fmt.Sprintf("domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: %s, unit_multiplier: %d, requests_per_unit: 7}", test.unit, test.multiplier))
		r := rules.Domain("d").Match(request("k=v"))
		if r.Limit.Period != test.want || r.Unit.String() != strings.ToUpper(test.unit) || int(r.UnitMultiplier) != test.multiplier || r.RequestsPerUnit != 7 {
			t.Errorf("%d × %s: %+v, want a period of %v", test.multiplier, test.unit, r, test.want)
		}
	}
}
