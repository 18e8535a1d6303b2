package descriptors

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sluice-rls/sluice/backend"
)

// limit is what a rate_limit map says, as far as it is given.
type limit struct {
	// unitText is the unit as written; unit is given only where it is a known one.
	unitText   string
	unitAt     *yaml.Node
	unit       given[Unit]
	requests   given[uint32]
	unlimited  bool
	name       string
	replaces   []string
	algorithm  given[backend.Algorithm]
	burst      given[uint32]
	multiplier given[uint32]
	onFailure  given[OnFailure]
	overflow   given[backend.Overflow]
	prefetch   given[bool]
	retryAfter RetryAfter
	body       *Body
}

var algorithms = choices[backend.Algorithm]{
	{"token_bucket", backend.TokenBucket},
	{"fixed_window", backend.FixedWindow},
	{"sliding_window", backend.SlidingWindow},
	{"sliding_log", backend.SlidingLog},
	{"leaky_bucket", backend.LeakyBucket},
}

var failures = choices[OnFailure]{{"local", FailLocal}, {"allow", FailAllow}, {"deny", FailDeny}}

var overflows = choices[backend.Overflow]{{"auto", backend.Auto}, {"reject", backend.Reject}, {"debt", backend.Debt}}

var prefetches = choices[bool]{{"auto", true}, {"off", false}}

// readLimit reads rate_limit; null is no limit.
func readLimit(p *parser, s *scope, d *descriptor, at *pair) {
	if isNull(at.value) {
		return
	}
	if at.value.Kind != yaml.MappingNode {
		p.fail(at.value, s, "rate_limit is %s; it takes a map", kindName(at.value))
		return
	}
	pairs := p.pairs(at.value, s, false)
	var l limit
	readPairs(p, s, p.language.limit, &l, pairs)
	switch own := find(pairs, "unlimited"); {
	case l.unlimited:
		p.checkUnlimited(&l, s, pairs)
	case own == nil || isPlainBoolean(own.value):
		p.checkRequired(&l, s, at.key, pairs)
		p.checkPeriod(&l, s)
		p.checkBurst(&l, s, pairs)
	}
	if at := slices.Index(l.replaces, l.name); at >= 0 && l.name != "" {
		p.fail(find(pairs, "replaces").key, s.field(fmt.Sprintf("replaces[%d]", at)), "%s replaces itself; name another rule", shown(l.name))
	}
	d.rule = l.rule(p.defaultAlgorithm)
}

// ruled are the keys that an unlimited rule has no use for, and unit aside, which the
// reference service refuses there if it is a valid one.
var ruled = []string{
	"requests_per_unit", "algorithm", "burst", "unit_multiplier", "on_failure", "overflow",
	"prefetch", "shards", "retry_after", "body",
}

func (p *parser) checkUnlimited(l *limit, s *scope, pairs []pair) {
	if l.unit.set() {
		p.failAt(l.unit.at, s.field("unit"), "%s beside unlimited: remove one of the two", shown(l.unitText))
	} else if l.unitAt != nil {
		p.warn(l.unitAt, s.field("unit"), "%s has no effect beside unlimited; remove it", shown(l.unitText))
	}
	for _, name := range ruled {
		if at := find(pairs, name); at != nil {
			p.warn(at.key, s.field(name), "%s has no effect beside unlimited; remove it", name)
		}
	}
}

// checkRequired reports what a limit can't do without; key is where rate_limit stands.
func (p *parser) checkRequired(l *limit, s *scope, key *yaml.Node, pairs []pair) {
	switch {
	case l.unit.set():
	case l.unitAt != nil && l.unitText != "":
		p.fail(l.unitAt, s.field("unit"), "%s is none of %s%s", shown(l.unitText), strings.Join(unitNames, ", "), meant(l.unitText, unitNames))
	case isEmpty(find(pairs, "unit")):
		p.fail(key, s.field("unit"), "missing; write one of %s", strings.Join(unitNames, ", "))
	}
	if at := find(pairs, "requests_per_unit"); at == nil || isNull(at.value) {
		p.fail(key, s.field("requests_per_unit"), "missing; write a whole number from 0 (nothing passes) to %d, or unlimited: true", int64(maxUint32))
	}
}

func (p *parser) checkPeriod(l *limit, s *scope) {
	multiplier := time.Duration(l.multiplier.or(1))
	if unit := l.unit.value.Duration(); unit > 0 && multiplier > MaxPeriod/unit {
		p.failAt(l.multiplier.at, s.field("unit_multiplier"), "%d × %s is above the longest period of 10 years; write at most %d",
			multiplier, strings.ToLower(l.unit.value.String()), MaxPeriod/unit)
	}
}

// checkBurst warns of a capacity where none is looked at.
func (p *parser) checkBurst(l *limit, s *scope, pairs []pair) {
	if !l.burst.set() {
		return
	}
	at := find(pairs, "burst").key
	if algorithm := l.algorithm.or(p.defaultAlgorithm); !hasBurst(algorithm) {
		p.warn(at, s.field("burst"), "burst has no effect with %s, which holds requests_per_unit; remove it", algorithmName(algorithm))
	} else if l.requests.set() && l.requests.value == 0 {
		p.warn(at, s.field("burst"), "burst has no effect beside requests_per_unit: 0, which lets nothing pass; remove it")
	}
}

// hasBurst reports whether an algorithm has a capacity apart from its rate.
func hasBurst(a backend.Algorithm) bool { return a == backend.TokenBucket || a == backend.LeakyBucket }

// rule makes the rule of a limit, with the defaults for what is not given.
func (l *limit) rule(defaultAlgorithm backend.Algorithm) *Rule {
	r := &Rule{
		Name: l.name, Replaces: l.replaces, Unlimited: l.unlimited,
		UnitMultiplier: 1, Prefetch: true, Overflow: backend.Auto,
	}
	if l.unlimited {
		return r
	}
	r.RequestsPerUnit, r.Unit, r.UnitMultiplier = l.requests.value, l.unit.value, l.multiplier.or(1)
	r.Overflow = l.overflow.or(backend.Auto)
	r.OnFailure = l.onFailure.value
	r.Prefetch = l.prefetch.or(true)
	r.RetryAfter, r.Body = l.retryAfter, l.body
	r.Limit = backend.Limit{
		Algorithm: l.algorithm.or(defaultAlgorithm),
		Requests:  uint64(r.RequestsPerUnit),
		Period:    r.Unit.Duration() * time.Duration(r.UnitMultiplier),
	}
	r.Limit.Burst, r.BurstWritten = l.capacity(r.Limit)
	return r
}

// leakyShare is the part of a leaky bucket's rate that is its capacity by default.
const leakyShare = 10 * time.Millisecond

// capacity is the bucket's capacity, and whether the file sets it.
func (l *limit) capacity(of backend.Limit) (tokens uint64, written bool) {
	if l.burst.set() && hasBurst(of.Algorithm) && of.Requests > 0 {
		return uint64(l.burst.value), true
	}
	return defaultBurst(of), false
}

// defaultBurst is the capacity of a limit that sets none.
func defaultBurst(of backend.Limit) uint64 {
	if of.Requests > 0 && of.Algorithm == backend.LeakyBucket {
		return max(1, of.Requests*uint64(leakyShare)/uint64(max(of.Period, 1)))
	}
	return of.Requests
}

// OverrideLimit is the limit that a request brings along, as a rule of the same numbers
// would have it under the given default algorithm. A multiplier of 0 counts as 1, and a
// period longer than MaxPeriod as that long: nobody waits for the difference.
func OverrideLimit(a backend.Algorithm, requests uint32, unit Unit, multiplier uint32) backend.Limit {
	l := backend.Limit{Algorithm: a, Requests: uint64(requests), Period: MaxPeriod}
	if m := time.Duration(max(multiplier, 1)); m <= MaxPeriod/unit.Duration() {
		l.Period = m * unit.Duration()
	}
	l.Burst = defaultBurst(l)
	return l
}

func algorithmName(a backend.Algorithm) string {
	for _, w := range algorithms {
		if w.value == a {
			return w.word
		}
	}
	return ""
}

func readUnit(p *parser, s *scope, l *limit, at *pair) {
	value, ok := p.scalar(at.value, s, "one of "+strings.Join(unitNames, ", "))
	if !ok {
		return
	}
	l.unitText, l.unitAt = value, at.value
	if u, ok := parseUnit(value); ok {
		l.unit = given[Unit]{u, spotOf(at.value)}
	}
}

var unitNames = []string{"second", "minute", "hour", "day", "week", "month", "year"}

// readShards takes only 1 until buckets can be spread.
func readShards(p *parser, s *scope, _ *limit, at *pair) {
	value, ok := p.integer(at.value, s, "write 1")
	switch {
	case ok && value > 1:
		p.fail(at.value, s, "%s is above 1: a bucket can't be spread over several yet; remove the key", oneLine(at.value.Value))
	case ok && value < 1:
		p.fail(at.value, s, "%s is below 1; write 1", oneLine(at.value.Value))
	}
}

func readRetryAfter(p *parser, s *scope, l *limit, at *pair) {
	if at.value.Kind == yaml.ScalarNode && strings.EqualFold(at.value.Value, "off") {
		l.retryAfter = RetryOff
		return
	}
	if at.value.Kind == yaml.ScalarNode && at.value.ShortTag() == strTag {
		p.fail(at.value, s, "%s is neither off nor a whole number of seconds from 1 to %d", shown(at.value.Value), maxRetryAfter)
		return
	}
	if value, ok := p.whole(at.value, s, 1, maxRetryAfter); ok {
		l.retryAfter = RetryAfter(value) //nolint:gosec // at most ten years in seconds
	}
}
