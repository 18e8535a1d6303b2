package rls

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-rls/sluice/descriptors"
)

// maxSeries bounds the series of one rule that shows values of requests in its metrics.
const maxSeries = 1000

// valueSeries are the counters of a rule with detailed_metric or value_to_metric: one for
// each label that requests bring, up to maxSeries, and one for all others, so that clients
// cannot make series without end.
type valueSeries struct {
	other    *ruleCounters
	overflow atomic.Uint64 // descriptors counted under other

	mu      sync.RWMutex // over byLabel
	byLabel map[string]*ruleCounters
}

func newValueSeries(name ruleName) *valueSeries {
	name.rule += " other"
	return &valueSeries{other: &ruleCounters{ruleName: name, counters: newCounters()}, byLabel: make(map[string]*ruleCounters)}
}

// of gives the counters for the entries of a request. label is scratch that it returns
// grown.
func (v *valueSeries) of(r *descriptors.Rule, entries []descriptors.Entry, label []byte) (*ruleCounters, []byte) {
	label = r.AppendLabel(label[:0], entries)
	v.mu.RLock()
	c, ok := v.byLabel[string(label)]
	full := len(v.byLabel) >= maxSeries
	v.mu.RUnlock()
	switch {
	case ok:
		return c, label
	case full:
		v.overflow.Add(1)
		return v.other, label
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if c, ok = v.byLabel[string(label)]; ok {
		return c, label
	}
	if len(v.byLabel) >= maxSeries {
		v.overflow.Add(1)
		return v.other, label
	}
	c = &ruleCounters{ruleName: ruleName{r.Domain, string(label)}, counters: newCounters()}
	v.byLabel[string(label)] = c
	return c, label
}

// each calls f with the counters that have a series.
func (v *valueSeries) each(f func(*ruleCounters)) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, c := range v.byLabel {
		f(c)
	}
	if v.overflow.Load() > 0 {
		f(v.other)
	}
}

// tally is a reading of counters on its way to the scraper. Two rules can come to one
// label, where one shows the values of requests; their series is the sum.
type tally struct {
	ruleName
	decisions            [numReasons]uint64
	asked, charged, near uint64
}

func (t *tally) add(c *ruleCounters) {
	for i := range c.counters {
		s := &c.counters[i]
		for r := range s.decisions {
			t.decisions[r] += s.decisions[r].Load()
		}
		t.asked += s.asked.Load()
		t.charged += s.charged.Load()
		t.near += s.near.Load()
	}
}

// tallies reads all counters of the set, each label once. The counters are those of
// byName, where rules that come to one label share theirs.
func (set *ruleSet) tallies() []*tally {
	all := make([]*tally, 0, len(set.byName))
	byName := make(map[ruleName]*tally, len(set.byName))
	add := func(c *ruleCounters) {
		t := byName[c.ruleName]
		if t == nil {
			t = &tally{ruleName: c.ruleName}
			byName[c.ruleName] = t
			all = append(all, t)
		}
		t.add(c)
	}
	for _, c := range set.byName {
		if c.values == nil {
			add(c)
		} else {
			c.values.each(add)
		}
	}
	return all
}
