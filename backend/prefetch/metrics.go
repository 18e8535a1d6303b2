package prefetch

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

var _ prometheus.Collector = (*Store)(nil)

// counters are what a Store counts.
type counters struct {
	granted, returned, expired, lost atomic.Uint64 // tokens
	asks                             atomic.Uint64
	waits                            atomic.Uint64
	saved, denials                   atomic.Uint64 // calls
}

// flush moves the counts of an entry to the Store's.
func (s *Store) flush(e *entry) {
	if n := e.served.Swap(0); n > 0 {
		s.saved.Add(uint64(n))
	}
	if n := e.denied.Swap(0); n > 0 {
		s.denials.Add(uint64(n))
	}
}

var (
	leaseTokens = prometheus.NewDesc("ratelimit_lease_tokens",
		"Tokens that this instance holds ahead of use.", nil, nil)
	leaseKeys = prometheus.NewDesc("ratelimit_lease_keys",
		"Keys that this instance keeps an entry for, those with a lease among them.", []string{"state"}, nil)
	leaseMoved = prometheus.NewDesc("ratelimit_lease_tokens_total",
		"Tokens that came ahead of use, that went back unused, that ended unused with their window, and that were lost on their way back.", []string{"event"}, nil)
	leaseAsks = prometheus.NewDesc("ratelimit_lease_asks_total",
		"Asks for tokens that were sent to Redis.", nil, nil)
	leaseCalls = prometheus.NewDesc("ratelimit_lease_decisions_total",
		"Descriptors decided in memory, from tokens held or since Redis could not pay them either, and those that waited for an ask.",
		[]string{"result"}, nil)
)

// Describe is part of prometheus.Collector.
func (s *Store) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leaseTokens, leaseKeys, leaseMoved, leaseAsks, leaseCalls} {
		ch <- d
	}
}

// Collect is part of prometheus.Collector.
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	held, leases := 0.0, s.listed()
	for _, e := range leases {
		s.flush(e)
		held += float64(e.tokens.Load())
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v *atomic.Uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v.Load()), labels...)
	}
	gauge(leaseTokens, held)
	gauge(leaseKeys, float64(s.table.count.Load()), "known")
	gauge(leaseKeys, float64(len(leases)), "leased")
	count(leaseMoved, &s.granted, "granted")
	count(leaseMoved, &s.returned, "returned")
	count(leaseMoved, &s.expired, "expired")
	count(leaseMoved, &s.lost, "lost")
	count(leaseAsks, &s.asks)
	count(leaseCalls, &s.saved, "leased")
	count(leaseCalls, &s.denials, "denied")
	count(leaseCalls, &s.waits, "waited")
}
