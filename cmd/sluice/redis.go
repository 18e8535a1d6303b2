package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/failover"
	"github.com/sluice-rls/sluice/backend/redisstore"
	"github.com/sluice-rls/sluice/config"
)

// redisTypes gives the ways in which Redis is run by the names of REDIS_TYPE.
var redisTypes = map[string]redisstore.Type{
	config.Single:   redisstore.Single,
	config.Sentinel: redisstore.Sentinel,
	config.Cluster:  redisstore.Cluster,
}

// openRedis keeps the buckets in Redis. A Redis that is late or away is no error: calls
// are answered within the budget meanwhile.
func openRedis(s config.Settings, log *slog.Logger, reg prometheus.Registerer) (*store, error) {
	o := s.Redis
	secure, err := redisTLS(o)
	if err != nil {
		return nil, err
	}
	redisstore.LogTo(log)
	shared, err := redisstore.New(redisstore.Options{
		Addrs: o.Addresses, Network: o.Network, Type: redisTypes[o.Type], MasterName: o.Master,
		Username: o.Username, Password: string(o.Password),
		SentinelUsername: o.SentinelUsername, SentinelPassword: string(o.SentinelPassword),
		TLS: secure, DB: o.DB, PoolSize: o.PoolSize, KeyPrefix: s.CacheKeyPrefix,
		DialTimeout: o.DialTimeout,
	})
	if err != nil {
		return nil, err
	}
	m := newRedisMetrics(reg, shared)
	link := &redisLink{log: log, ping: shared.Ping}
	return &store{
		Store: failover.New(timed{shared, m.duration.WithLabelValues("take")}, failover.Options{
			Budget:  o.Budget,
			Observe: func(kind string, _ time.Duration) { m.errors.WithLabelValues(kind).Inc() },
		}),
		place: "Redis at " + strings.Join(o.Addresses, ", "),
		ready: link.ready,
		run:   link.run,
		close: func() {
			if err := shared.Close(); err != nil {
				log.Warn("closing Redis", slog.Any("error", err))
			}
		},
	}, nil
}

// redisLink waits for the first sign of life from Redis.
type redisLink struct {
	log  *slog.Logger
	ping func(context.Context) error
	seen atomic.Bool
}

var errNoContact = errors.New("no contact with Redis so far: calls pass without it; see REDIS_URL and the log")

func (l *redisLink) ready() error {
	if l.seen.Load() {
		return nil
	}
	return errNoContact
}

// run asks for a sign of life, less and less often, until there is one or ctx is done.
func (l *redisLink) run(ctx context.Context) error {
	const most = 5 * time.Second
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, most) {
		try, cancel := context.WithTimeout(ctx, time.Second)
		err := l.ping(try)
		cancel()
		if err == nil {
			l.seen.Store(true)
			l.log.Info("Redis answers")
			return nil
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of the process is no failure
		}
		l.log.Warn("waiting for Redis", slog.Any("error", err), slog.Duration("again_in", wait))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// timed is a store whose answers are timed.
type timed struct {
	backend.Store
	duration prometheus.Observer
}

// Take is part of backend.Store.
func (t timed) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	start := time.Now()
	err := t.Store.Take(ctx, takes, dst)
	t.duration.Observe(time.Since(start).Seconds())
	return err
}

// redisMetrics tell of Redis and the way to it.
type redisMetrics struct {
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec
}

func newRedisMetrics(reg prometheus.Registerer, s *redisstore.Store) *redisMetrics {
	m := &redisMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ratelimit_redis_duration_seconds",
			Help:    "Time until Redis answered, or until its answer was not waited for any more.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
		}, []string{"op"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimit_redis_errors_total",
			Help: "Calls that Redis did not decide, by what was in the way.",
		}, []string{"kind"}),
	}
	for _, kind := range []string{redisstore.KindTimeout, redisstore.KindNetwork, redisstore.KindPool, redisstore.KindOther} {
		m.errors.WithLabelValues(kind)
	}
	reg.MustRegister(m.duration, m.errors, poolMetrics{s})
	return m
}

// poolMetrics collects the state of the connections.
type poolMetrics struct{ store *redisstore.Store }

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
	p := m.store.Pool()
	ch <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue, float64(p.Open-p.Idle), "active")
	ch <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue, float64(p.Idle), "idle")
	ch <- prometheus.MustNewConstMetric(poolWaits, prometheus.CounterValue, float64(p.Waits), "all")
	ch <- prometheus.MustNewConstMetric(poolWaits, prometheus.CounterValue, float64(p.Timeouts), "timeout")
	ch <- prometheus.MustNewConstMetric(tokensKept, prometheus.CounterValue, float64(m.store.Kept()))
}
