package descriptors

import (
	"strings"
	"time"
)

// Unit is the period of a limit before its multiplier. Its numbers are those of
// envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit.
type Unit uint8

// The units of the rule language. UnknownUnit is no unit and is refused in a file.
const (
	UnknownUnit Unit = iota
	Second
	Minute
	Hour
	Day
	Month
	Year
	Week
)

const day = 24 * time.Hour

// MaxPeriod is the longest period of a limit, its unit times its multiplier: ten years
// of 365 days, which is also the longest that a bucket is kept.
const MaxPeriod = 10 * 365 * day

var units = [...]struct {
	name     string
	duration time.Duration
}{
	UnknownUnit: {"UNKNOWN", 0},
	Second:      {"SECOND", time.Second},
	Minute:      {"MINUTE", time.Minute},
	Hour:        {"HOUR", time.Hour},
	Day:         {"DAY", day},
	Month:       {"MONTH", 30 * day},
	Year:        {"YEAR", 365 * day},
	Week:        {"WEEK", 7 * day},
}

// Duration is the length of one unit: a month has 30 days, a year 365. It is zero for
// UnknownUnit and for numbers that name no unit.
func (u Unit) Duration() time.Duration {
	if int(u) >= len(units) {
		return 0
	}
	return units[u].duration
}

// String is the unit's name in upper case, "UNKNOWN" for numbers that name no unit.
func (u Unit) String() string {
	if int(u) >= len(units) {
		u = UnknownUnit
	}
	return units[u].name
}

// parseUnit finds a unit by its name in any letter case.
func parseUnit(text string) (Unit, bool) {
	for u := Second; int(u) < len(units); u++ {
		if strings.EqualFold(text, units[u].name) {
			return u, true
		}
	}
	return UnknownUnit, false
}
