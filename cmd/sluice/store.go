package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/config"
)

// store is where the buckets are, with what the process needs to know of it.
type store struct {
	backend.Store
	place string // for people
	// ready says why calls are not decided by the store yet; nil where there is nothing to
	// wait for.
	ready func() error
	// run keeps the store going until its context is done.
	run   func(context.Context) error
	close func()
}

// openStore opens the store that the settings name. It does not wait for Redis.
func openStore(s config.Settings, log *slog.Logger, reg prometheus.Registerer) (*store, error) {
	if s.Embedded() {
		return embedded(reg), nil
	}
	return openRedis(s, log, reg)
}

// embedded keeps the buckets in this process.
func embedded(reg prometheus.Registerer) *store {
	m := memstore.New(memstore.Options{})
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ratelimit_memory_buckets",
			Help: "Buckets kept in this process.",
		}, func() float64 { return float64(m.Len()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "ratelimit_memory_evictions_total",
			Help: "Buckets that were dropped before they were full, to make room for others.",
		}, func() float64 { return float64(m.Evicted()) }),
	)
	return &store{
		Store: m,
		place: "this process",
		run:   func(context.Context) error { return nil },
		close: func() {},
	}
}
