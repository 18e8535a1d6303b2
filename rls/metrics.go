package rls

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls/wire"
)

// reason is why a descriptor was decided as it was: the last label of
// ratelimit_decisions_total.
type reason uint8

const (
	within         reason = iota // its bucket could pay
	exhausted                    // its bucket could not
	blocked                      // a limit of no requests
	shadowed                     // over, in shadow mode
	callDenied                   // it could pass, and another descriptor denied the call
	noLimit                      // an unlimited rule
	wasReplaced                  // dropped by another rule's replaces
	localShare                   // the store did not answer: a bucket of this process could pay
	localExhausted               // it could not
	degradedAllow                // the store did not answer, and the rule allows then
	degradedDeny                 // or denies then
	numReasons
)

var reasons = [numReasons]struct{ decision, reason string }{
	within:         {"ok", "within"},
	exhausted:      {"over_limit", "exhausted"},
	blocked:        {"over_limit", "blocked"},
	shadowed:       {"ok", "shadow"},
	callDenied:     {"ok", "call_denied"},
	noLimit:        {"ok", "unlimited"},
	wasReplaced:    {"ok", "replaced"},
	localShare:     {"ok", "local_share"},
	localExhausted: {"over_limit", "local_share"},
	degradedAllow:  {"ok", "degraded_allow"},
	degradedDeny:   {"over_limit", "degraded_deny"},
}

// denials are the reasons of what is over its limit, by what decided that.
var denials = [...]reason{
	backend.Bucketed:      exhausted,
	backend.LocalShare:    localExhausted,
	backend.DegradedAllow: degradedAllow,
	backend.DegradedDeny:  degradedDeny,
}

type ruleName struct{ domain, rule string }

// ruleCounters are the counters of one rule, or of rules that come to one label. They
// outlive a reload: the next rules take over those of the rules that stay, by domain and
// path.
type ruleCounters struct {
	ruleName
	counters
	// values, if not nil, has the counters that are counted with in place of these.
	values *valueSeries
	limit  *backend.Limit // nil: unlimited
}

// domainCounters count what no rule decided.
type domainCounters struct {
	domain                              string
	unmatched, overrideOK, overrideOver atomic.Uint64
}

// ruleSet holds the rules in force and, in the order of their IDs, what is made of them
// once: their counters, and the current_limit that their statuses show.
type ruleSet struct {
	rules    *descriptors.Rules
	counters []*ruleCounters
	limits   [][]byte
	byName   map[ruleName]*ruleCounters
	domains  map[string]*domainCounters
}

// metrics are the package's own, and the collector of those that are per rule: they are
// plain counters while calls are counted, and become series only when they are read.
type metrics struct {
	duration                 *latencies
	scratches                atomic.Uint32 // made so far, to spread them over the stripes
	invalid                  prometheus.Counter
	unavailable              prometheus.Counter
	panics                   prometheus.Counter
	overridesIgnored         prometheus.Counter
	unknownDomain            atomic.Uint64
	switchedOK, switchedOver atomic.Uint64 // descriptors that an operator's switch decided
	nearRatio                float64
	rules                    func() *descriptors.Rules // in force

	mu  sync.Mutex // over changes of set
	set atomic.Pointer[ruleSet]

	decisions, hits, near, overflow, rate, burst *prometheus.Desc
}

func newMetrics(reg prometheus.Registerer, rules func() *descriptors.Rules, nearRatio float64) *metrics {
	m := &metrics{
		nearRatio: nearRatio,
		rules:     rules,
		duration: newLatencies("ratelimit_request_duration_seconds",
			"Time from the decoding of a call to its answer, without the transport."),
		invalid: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ratelimit_invalid_requests_total",
			Help: "Calls refused since their message breaks the protocol.",
		}),
		unavailable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ratelimit_unavailable_total",
			Help: "Calls answered with UNAVAILABLE, since the store gave no decision and FAILURE_MODE says error.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ratelimit_panics_total",
			Help: "Panics that were caught and turned into errors of their calls.",
		}),
		overridesIgnored: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ratelimit_overrides_ignored_total",
			Help: "Limits in requests that were ignored since their unit is unknown.",
		}),
		decisions: prometheus.NewDesc("ratelimit_decisions_total",
			"Descriptors decided, by the rule that decided them. An unknown domain and no rule are empty labels.",
			[]string{"domain", "rule", "decision", "reason"}, nil),
		hits: prometheus.NewDesc("ratelimit_hits_total",
			"Hits asked of a rule, and hits that its buckets were charged.",
			[]string{"domain", "rule", "kind"}, nil),
		near: prometheus.NewDesc("ratelimit_near_limit_total",
			"Hits charged to buckets that were then used beyond the near-limit ratio.",
			[]string{"domain", "rule"}, nil),
		overflow: prometheus.NewDesc("ratelimit_series_overflow_total",
			"Descriptors of a rule whose metrics show values that were counted as other, since it has too many values.",
			[]string{"domain", "rule"}, nil),
		rate: prometheus.NewDesc("ratelimit_rule_tokens_per_second",
			"Tokens that come back to a bucket of the rule each second: its limit.",
			[]string{"domain", "rule"}, nil),
		burst: prometheus.NewDesc("ratelimit_rule_burst_tokens",
			"Tokens that a bucket of the rule holds at most.",
			[]string{"domain", "rule"}, nil),
	}
	m.set.Store(&ruleSet{})
	if reg != nil {
		reg.MustRegister(m.duration, m.invalid, m.unavailable, m.panics, m.overridesIgnored, m)
	}
	return m
}

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.decisions
	ch <- m.hits
	ch <- m.near
	ch <- m.overflow
	ch <- m.rate
	ch <- m.burst
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	set := m.current()
	for _, t := range set.tallies() {
		for r, n := range t.decisions {
			if n > 0 || reason(r) == within || reason(r) == exhausted {
				count(m.decisions, n, t.domain, t.rule, reasons[r].decision, reasons[r].reason)
			}
		}
		count(m.hits, t.asked, t.domain, t.rule, "asked")
		count(m.hits, t.charged, t.domain, t.rule, "charged")
		count(m.near, t.near, t.domain, t.rule)
	}
	for _, c := range set.byName {
		if c.values != nil {
			count(m.overflow, c.values.overflow.Load(), c.domain, c.rule)
		}
		if l := c.limit; l != nil {
			ch <- prometheus.MustNewConstMetric(m.rate, prometheus.GaugeValue, float64(l.Requests)/max(l.Period.Seconds(), 1), c.domain, c.rule)
			ch <- prometheus.MustNewConstMetric(m.burst, prometheus.GaugeValue, float64(l.Burst), c.domain, c.rule)
		}
	}
	for _, d := range set.domains {
		count(m.decisions, d.unmatched.Load(), d.domain, "", "ok", "unmatched")
		count(m.decisions, d.overrideOK.Load(), d.domain, "", "ok", "override")
		count(m.decisions, d.overrideOver.Load(), d.domain, "", "over_limit", "override")
	}
	count(m.decisions, m.unknownDomain.Load(), "", "", "ok", "unknown_domain")
	count(m.decisions, m.switchedOK.Load(), "", "", "ok", "switch")
	count(m.decisions, m.switchedOver.Load(), "", "", "over_limit", "switch")
}

// current gives the counters of the rules in force, making them on the first call after
// a reload.
func (m *metrics) current() *ruleSet {
	rules := m.rules()
	if set := m.set.Load(); set.rules == rules {
		return set
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	rules = m.rules()
	old := m.set.Load()
	if old.rules == rules {
		return old
	}
	set := takeOver(old, rules)
	m.set.Store(set)
	return set
}

func takeOver(old *ruleSet, rules *descriptors.Rules) *ruleSet {
	set := &ruleSet{
		rules:    rules,
		counters: make([]*ruleCounters, rules.Len()),
		limits:   make([][]byte, rules.Len()),
		byName:   make(map[ruleName]*ruleCounters, rules.Len()),
		domains:  make(map[string]*domainCounters),
	}
	for r := range rules.All() {
		name := ruleName{r.Domain, r.Path}
		c := set.byName[name]
		if c == nil {
			c = old.byName[name].forRule(r)
		}
		set.counters[r.ID], set.byName[name] = c, c
		set.limits[r.ID] = wire.AppendLimit(nil, r.RequestsPerUnit, uint32(r.Unit), r.UnitMultiplier, r.Name)
	}
	for _, name := range rules.Domains() {
		d := old.domains[name]
		if d == nil {
			d = &domainCounters{domain: name}
		}
		set.domains[name] = d
	}
	return set
}

// forRule gives the counters c of a rule's forerunner, or nil, in the form that the rule
// needs now: it keeps counting where that one was.
func (c *ruleCounters) forRule(r *descriptors.Rule) *ruleCounters {
	name := ruleName{r.Domain, r.Path}
	if c == nil || (c.values != nil) != r.PerValueMetric {
		c = &ruleCounters{counters: newCounters(), ruleName: name}
		if r.PerValueMetric {
			c.values = newValueSeries(name)
		}
	}
	now := *c
	now.limit = nil
	if !r.Unlimited {
		now.limit = &r.Limit
	}
	return &now
}

// nextStripe gives a new scratch its number.
func (m *metrics) nextStripe() uint32 { return m.scratches.Add(1) }

// observe notes how long a call took.
func (m *metrics) observe(c *call) { m.duration.observe(c.stripe, time.Since(c.start)) }

// count adds a call that was decided to the counters: every descriptor counts once. If a
// reload has replaced the rules since, the counters are those that the next ones took
// over, or went with them.
func (m *metrics) count(c *call) {
	if c.switched.decides() {
		n := &m.switchedOK
		if c.denied {
			n = &m.switchedOver
		}
		n.Add(uint64(len(c.req.Descriptors)))
		return
	}
	if c.dom == nil {
		m.unknownDomain.Add(uint64(len(c.slots)))
		return
	}
	for i := range c.slots {
		sl := &c.slots[i]
		if sl.rule != nil {
			n := c.set.counters[sl.rule.ID]
			if n.values != nil {
				n, c.label = n.values.of(sl.rule, c.entries(&c.req.Descriptors[i]), c.label)
			}
			m.countRule(n.of(c.stripe), c, sl)
			continue
		}
		switch domain := c.set.domains[c.dom.Name()]; {
		case sl.kind == unmatched:
			domain.unmatched.Add(1)
		case sl.over:
			domain.overrideOver.Add(1)
		default:
			domain.overrideOK.Add(1)
		}
	}
}

func (m *metrics) countRule(n *stripe, c *call, sl *slot) {
	n.decisions[c.reason(sl)].Add(1)
	if sl.kind != limited || sl.negative {
		return
	}
	n.asked.Add(sl.hits)
	if sl.requests == 0 {
		return
	}
	take, d := &c.takes[sl.take], &c.dst[sl.take]
	if d.Charged == 0 {
		return
	}
	charged := min(sl.hits, d.Charged)
	n.charged.Add(charged)
	if d.Level < (1-m.nearRatio)*float64(take.Limit.Burst) {
		n.near.Add(charged)
	}
}

func (c *call) reason(sl *slot) reason {
	switch {
	case sl.kind == unlimited:
		return noLimit
	case sl.kind == replaced:
		return wasReplaced
	case c.dst[sl.take].Source == backend.DegradedAllow:
		return degradedAllow
	case sl.over && sl.mode == backend.Shadow:
		return shadowed
	case sl.over && sl.requests == 0:
		return blocked
	case sl.over:
		return denials[c.dst[sl.take].Source]
	case c.denied:
		return callDenied
	case c.dst[sl.take].Source == backend.LocalShare:
		return localShare
	}
	return within
}
