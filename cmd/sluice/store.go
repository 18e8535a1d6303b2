package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-rls/sluice/admin"
	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/failover"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/backend/prefetch"
	"github.com/sluice-rls/sluice/config"
	"github.com/sluice-rls/sluice/rls"
)

// store is where the buckets are, with what the process needs to know of it.
type store struct {
	backend.Store
	place string // for people
	// ready is the store's part of /readyz; nil where there is nothing to wait for.
	ready func() admin.Part
	// healthy says why the process should get no calls at all, if the store has a say in
	// that; else nil.
	healthy func() error
	// fallbacks decide while the store is away; none if it cannot be.
	fallbacks []*failover.Store
	// leases are what is held ahead; nil without prefetching.
	leases *prefetch.Store
	// run keeps the store going until its context is done.
	run   func(context.Context) error
	close func()
}

// openStore opens the store that the settings name, with room for so many buckets if they
// are kept in this process. It does not wait for Redis.
func openStore(s config.Settings, log *slog.Logger, reg prometheus.Registerer, room int) (*store, error) {
	if s.Embedded() {
		return embedded(reg, room), nil
	}
	return openRedis(s, log, reg)
}

// embedded keeps the buckets in this process.
func embedded(reg prometheus.Registerer, room int) *store {
	m := memstore.New(memstore.Options{MaxBuckets: room})
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
		Store: atOnce{m},
		place: "this process",
		run:   func(context.Context) error { return nil },
		close: func() {},
	}
}

// atOnce is the store in this process, which never waits.
type atOnce struct{ *memstore.Store }

var _ rls.Immediate = atOnce{}

// TakeNow is part of rls.Immediate.
func (s atOnce) TakeNow(takes []backend.Take, dst []backend.Decision) (bool, error) {
	return true, s.Take(context.Background(), takes, dst)
}
