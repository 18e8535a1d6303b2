package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/failover"
	"github.com/sluice-rls/sluice/backend/redisstore"
)

func newRedisDuration(reg prometheus.Registerer) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ratelimit_redis_duration_seconds",
		Help:    "Time until Redis answered a call, whether or not somebody still waited for it.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
	}, []string{"op"})
	reg.MustRegister(h)
	return h
}

// redisErrors counts the calls that Redis did not decide.
type redisErrors struct{ total *prometheus.CounterVec }

func newRedisErrors(reg prometheus.Registerer) *redisErrors {
	e := &redisErrors{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimit_redis_errors_total",
		Help: "Calls that Redis did not decide in time, by what was in the way.",
	}, []string{"kind"})}
	for _, kind := range []string{
		"breaker", "full", redisstore.KindTimeout, redisstore.KindNetwork, redisstore.KindPool, redisstore.KindOther,
	} {
		e.total.WithLabelValues(kind)
	}
	reg.MustRegister(e.total)
	return e
}

func (e *redisErrors) observe(kind string, _ time.Duration) { e.total.WithLabelValues(kind).Inc() }

// registerRedis adds what is read from the parts when somebody looks.
func registerRedis(reg prometheus.Registerer, parts []*redisPart, h *heart, refuse bool) {
	sum := func(of func(*failover.Store) float64) func() float64 {
		return func() (n float64) {
			for _, p := range parts {
				n += of(p.guarded)
			}
			return n
		}
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	reg.MustRegister(
		poolMetrics(parts),
		outageMetrics{parts, refuse},
		gauge("ratelimit_instances", "Instances that share the limits, as INSTANCES or Redis says.",
			func() float64 { return float64(h.instances()) }),
		gauge("ratelimit_redis_in_flight", "Commands on their way to Redis, those included that nobody waits for any more.",
			sum(func(g *failover.Store) float64 { return float64(g.InFlight()) })),
		gauge("ratelimit_local_buckets", "Buckets of this process that stand in for those in Redis.",
			sum(func(g *failover.Store) float64 { return float64(g.LocalBuckets()) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "ratelimit_local_evictions_total",
			Help: "Buckets that stood in for those in Redis and had to make room for others.",
		}, sum(func(g *failover.Store) float64 { return float64(g.Evicted()) })),
	)
}

// outageMetrics collects the state of the breakers.
type outageMetrics struct {
	parts  []*redisPart
	refuse bool
}

var (
	degradedMode = prometheus.NewDesc("ratelimit_degraded",
		"1 for what decides at the moment where a rule leaves it to ON_FAILURE, since a breaker is open.", []string{"mode"}, nil)
	breakerState = prometheus.NewDesc("ratelimit_breaker_state",
		"1 while the breaker of a server is open and its calls are decided without it, else 0. The server is named on a cluster only.",
		[]string{"redis", "server"}, nil)
)

// partNames are those of the first Redis and of the second.
var partNames = [...]string{"main", "persecond"}

// Describe is part of prometheus.Collector.
func (outageMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- degradedMode
	ch <- breakerState
}

// Collect is part of prometheus.Collector.
func (m outageMetrics) Collect(ch chan<- prometheus.Metric) {
	degraded := false
	for i, p := range m.parts {
		breakers := p.guarded.Breakers()
		if len(breakers) == 0 { // there from the start
			breakers[""] = false
		}
		for server, open := range breakers {
			degraded = degraded || open
			ch <- prometheus.MustNewConstMetric(breakerState, prometheus.GaugeValue, truth(open), partNames[i], server)
		}
	}
	for mode, f := range onFailures {
		ch <- prometheus.MustNewConstMetric(degradedMode, prometheus.GaugeValue, truth(degraded && !m.refuse && m.inForce(f)), mode)
	}
	ch <- prometheus.MustNewConstMetric(degradedMode, prometheus.GaugeValue, truth(degraded && m.refuse), "error")
}

func (m outageMetrics) inForce(f backend.OnFailure) bool { return m.parts[0].guarded.OnFailure() == f }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// poolMetrics collects the state of the connections.
type poolMetrics []*redisPart

var (
	poolConnections = prometheus.NewDesc("ratelimit_redis_pool_connections",
		"Connections to Redis.", []string{"state"}, nil)
	poolWaits = prometheus.NewDesc("ratelimit_redis_pool_waits_total",
		"Calls that waited for a free connection, and those that waited in vain.", []string{"result"}, nil)
	tokensKept = prometheus.NewDesc("ratelimit_redis_tokens_kept_total",
		"Tokens of denied calls that could not be put back, since Redis did not answer in the middle of a call.", nil, nil)
)

// Describe is part of prometheus.Collector.
func (poolMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- poolConnections
	ch <- poolWaits
	ch <- tokensKept
}

// Collect is part of prometheus.Collector.
func (m poolMetrics) Collect(ch chan<- prometheus.Metric) {
	var all redisstore.Pool
	kept := uint64(0)
	for _, part := range m {
		p := part.shared.Pool()
		all.Open += p.Open
		all.Idle += p.Idle
		all.Waits += p.Waits
		all.Timeouts += p.Timeouts
		kept += part.shared.Kept()
	}
	ch <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue, float64(all.Open-all.Idle), "active")
	ch <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue, float64(all.Idle), "idle")
	ch <- prometheus.MustNewConstMetric(poolWaits, prometheus.CounterValue, float64(all.Waits), "all")
	ch <- prometheus.MustNewConstMetric(poolWaits, prometheus.CounterValue, float64(all.Timeouts), "timeout")
	ch <- prometheus.MustNewConstMetric(tokensKept, prometheus.CounterValue, float64(kept))
}
