package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-rls/sluice/admin"
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

// onFailures gives what decides without Redis by the names of ON_FAILURE.
var onFailures = map[string]backend.OnFailure{
	"local": backend.FailLocal,
	"allow": backend.FailAllow,
	"deny":  backend.FailDeny,
}

// openRedis keeps the buckets in Redis. A Redis that is late or away is no error: calls
// are answered within the budget meanwhile.
func openRedis(s config.Settings, log *slog.Logger, reg prometheus.Registerer) (*store, error) {
	redisstore.LogTo(log)
	o := redisOpener{
		settings: s, log: log, errors: newRedisErrors(reg), duration: newRedisDuration(reg).WithLabelValues("take"),
		hearts: newHeart(log, s.Instances),
	}
	first, err := o.open(s.Redis)
	if err != nil {
		return nil, err
	}
	o.hearts.shared = first.shared
	parts := []*redisPart{first}
	opened := &store{Store: first.guarded, place: "Redis at " + strings.Join(s.Redis.Addresses, ", ")}
	if len(s.PerSecond.Addresses) > 0 {
		second, err := o.open(s.PerSecond)
		if err != nil {
			return nil, errors.Join(err, first.shared.Close())
		}
		parts = append(parts, second)
		opened.Store = failover.NewPair(first.guarded, second.guarded, bySecond, s.Redis.Budget)
		opened.place += ", and by the second at " + strings.Join(s.PerSecond.Addresses, ", ")
	}
	opened.ready = func() admin.Part { return readyPart(parts, s.Redis.HealthCheck) }
	if s.Redis.HealthCheck {
		opened.healthy = func() error { return firstOf(parts, (*redisPart).healthy) }
	}
	for _, p := range parts {
		opened.fallbacks = append(opened.fallbacks, p.guarded)
		o.hearts.ranked = append(o.hearts.ranked, p.guarded)
	}
	registerRedis(reg, parts, o.hearts, s.FailureMode == "error")
	opened.run = func(ctx context.Context) error { return runRedis(ctx, parts, o.hearts) }
	if s.Prefetch {
		prefetched(opened, s, reg)
	}
	opened.close = func() { closeRedis(parts, o.hearts, log) }
	return opened, nil
}

// bySecond reports whether a limit lies in the second Redis, if there is one.
func bySecond(l *backend.Limit) bool { return l.Period == time.Second }

// redisPart is one Redis: single, with sentinels or a cluster.
type redisPart struct {
	shared  *redisstore.Store
	guarded *failover.Store
	link    *redisLink
}

func (p *redisPart) ready() error   { return p.link.ready() }
func (p *redisPart) healthy() error { return p.link.healthy() }

// firstOf is the first complaint.
func firstOf(parts []*redisPart, complaint func(*redisPart) error) error {
	for _, p := range parts {
		if err := complaint(p); err != nil {
			return err
		}
	}
	return nil
}

// readyPart is the part of Redis in /readyz. Once Redis was reached, an outage is said there
// and does no more, unless tied: calls are answered meanwhile, and an instance that Envoy
// stays away from would answer none.
func readyPart(parts []*redisPart, tied bool) admin.Part {
	err := firstOf(parts, (*redisPart).ready)
	waits := err != nil
	if !waits {
		err = firstOf(parts, (*redisPart).healthy)
	}
	p := part("redis", err)
	p.OK = p.OK || !waits && !tied
	return p
}

// redisOpener has what the parts have in common.
type redisOpener struct {
	settings config.Settings
	log      *slog.Logger
	errors   *redisErrors
	duration prometheus.Observer
	hearts   *heart
}

func (o *redisOpener) open(r config.Redis) (*redisPart, error) {
	p := &redisPart{}
	var err error
	p.shared, err = dialRedis(r, o.settings.CacheKeyPrefix, o.log, func(server string, took time.Duration, err error) {
		p.guarded.Answered(server, took, err)
	})
	if err != nil {
		return nil, err
	}
	p.guarded = failover.New(p.shared, failover.Options{
		Budget:      r.Budget,
		Slow:        r.Slow,
		MaxInFlight: r.MaxInFlight,
		Server:      p.shared.Server,
		Told:        r.Type == config.Cluster,
		Probe:       p.shared.Probe,
		OnFailure:   onFailures[o.settings.OnFailure],
		Refuse:      o.settings.FailureMode == "error",
		Instances:   o.hearts.instances,
		Observe:     o.errors.observe,
		Took:        func(took time.Duration) { o.duration.Observe(took.Seconds()) },
		Logger:      o.log,
	})
	p.link = &redisLink{
		log:   o.log.With(slog.String("redis", strings.Join(r.Addresses, ","))),
		probe: func(ctx context.Context) error { return p.shared.Probe(ctx, "") },
		open:  p.guarded.Open,
	}
	if o.settings.FailFast {
		p.link.patience = o.settings.StartTimeout
	}
	return p, nil
}

// runRedis keeps the parts going until ctx is done.
func runRedis(ctx context.Context, parts []*redisPart, hearts *heart) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, p := range parts {
		group.Go(func() error { return p.guarded.Run(ctx) })
		group.Go(func() error {
			if err := p.link.run(ctx); err != nil || i > 0 {
				return err
			}
			return hearts.run(ctx) // the first has the list
		})
	}
	return group.Wait()
}

func closeRedis(parts []*redisPart, hearts *heart, log *slog.Logger) {
	for _, p := range parts {
		p.guarded.Close()
	}
	hearts.leave()
	for _, p := range parts {
		if err := p.shared.Close(); err != nil {
			log.Warn("closing Redis", slog.Any("error", err))
		}
	}
}

// dialRedis makes a store of one Redis; it connects to nothing yet.
func dialRedis(o config.Redis, prefix string, log *slog.Logger, answered func(string, time.Duration, error)) (*redisstore.Store, error) {
	secure, err := redisTLS(o)
	if err != nil {
		return nil, err
	}
	return redisstore.New(redisstore.Options{
		Addrs: o.Addresses, Network: o.Network, Type: redisTypes[o.Type], MasterName: o.Master,
		Username: o.Username, Password: string(o.Password),
		SentinelUsername: o.SentinelUsername, SentinelPassword: string(o.SentinelPassword),
		TLS: secure, DB: o.DB, PoolSize: o.PoolSize, KeyPrefix: prefix,
		DialTimeout: o.DialTimeout,
		PoolTimeout: o.Budget, // whose caller has left needs no connection any more
		Answered:    answered,
		Logger:      log,
	})
}

// redisLink waits for the first sign of life from Redis.
type redisLink struct {
	log   *slog.Logger
	probe func(context.Context) error
	open  func() bool // a breaker is open
	// patience is how long to wait before giving up; 0 is for ever.
	patience time.Duration
	seen     atomic.Bool
}

var (
	errNoContact = errors.New("no contact with Redis so far: calls are decided without it; see REDIS_URL and the log")
	errRedisAway = errors.New("no answer from Redis: calls are decided without it")
)

// ready is why the process should not get calls yet.
func (l *redisLink) ready() error {
	if l.seen.Load() {
		return nil
	}
	return errNoContact
}

// healthy is why REDIS_HEALTH_CHECK_ACTIVE_CONNECTION makes the process unhealthy.
func (l *redisLink) healthy() error {
	if l.open() {
		return errRedisAway
	}
	return l.ready()
}

const (
	// askMost is the longest time between two questions for a first sign of life, and sayMost
	// that between two lines of the log about it.
	askMost, sayMost = 500 * time.Millisecond, time.Minute
	// askWait is how long to wait for the answer to one.
	askWait = time.Second
)

// run asks for a sign of life, less and less often, until there is one or ctx is done. It
// fails once its patience is over.
func (l *redisLink) run(ctx context.Context) error {
	began := time.Now()
	giveUp := make(<-chan time.Time)
	if l.patience > 0 {
		giveUp = time.After(l.patience)
	}
	say, saidAt := 100*time.Millisecond, began.Add(-time.Hour)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, askMost) {
		try, cancel := context.WithTimeout(ctx, askWait)
		err := l.probe(try)
		cancel()
		if err == nil {
			l.seen.Store(true)
			l.log.Info("Redis answers", slog.Duration("after", time.Since(began).Round(time.Millisecond)))
			return nil
		}
		if now := time.Now(); ctx.Err() == nil && now.Sub(saidAt) >= say {
			l.log.Log(ctx, gravity(err), "waiting for Redis", slog.Any("error", err))
			say, saidAt = min(2*say, sayMost), now
		}
		select {
		case <-time.After(wait):
		case <-giveUp:
			return fmt.Errorf("waiting %v for Redis, by START_TIMEOUT: %w", l.patience, err)
		case <-ctx.Done():
			return nil
		}
	}
}

// gravity is that of an error of Redis: one that waiting does not mend needs somebody.
func gravity(err error) slog.Level {
	if e, ok := errors.AsType[*redisstore.Error](err); ok {
		switch e.Kind() {
		case redisstore.KindAuth, redisstore.KindScripts, redisstore.KindTLS:
			return slog.LevelError
		}
	}
	return slog.LevelWarn
}
