// Package rls answers the calls of Envoy's rate limit service, version 3
// (envoy/service/ratelimit/v3/rls.proto): it matches the descriptors of a call with
// the rules, asks the store for all of them at once, and makes the answer of the
// decisions.
//
// The way of a call through the files: grpc.go (or json.go) takes the bytes, call.go
// matches and plans the takes, answer.go turns decisions into statuses, headers.go and
// metadata.go add what clients see, metrics.go counts. Protobuf's types stop in this
// package, and it alone makes gRPC statuses. It knows neither which store it asks nor
// where rules come from.
//
// A Service is safe for concurrent use.
package rls

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls/wire"
)

// Options are the optional settings of a Service. The zero value is the default.
type Options struct {
	// Logger takes the package's logs; nil discards them.
	Logger *slog.Logger
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
	// Headers names the headers that tell of the limit; nil sends none, since Envoy
	// makes its own from the statuses.
	Headers *HeaderNames
	// Shadow answers OK to every call; the statuses say what would have been.
	Shadow bool
	// Quota treats every rule as one with quota_mode.
	Quota bool
	// DynamicMetadata adds domain, descriptors and the rules' metadata to the answer.
	DynamicMetadata bool
	// NearLimitRatio is the used part of a bucket from which a hit counts as near the
	// limit; 0 means 0.8.
	NearLimitRatio float64
	// OverrideAlgorithm is the algorithm of limits that come with a request.
	OverrideAlgorithm backend.Algorithm
}

// Service decides calls.
type Service struct {
	store   backend.Store
	rules   func() *descriptors.Rules
	opts    Options
	log     *slog.Logger
	metrics *metrics
	calls   sync.Pool // of *call

	refusals, failures gate // of the log
}

// New returns a service that asks store for what the rules do not decide alone. rules
// is called once per call and returns the rules in force, never nil.
func New(store backend.Store, rules func() *descriptors.Rules, opts Options) *Service {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.NearLimitRatio == 0 {
		opts.NearLimitRatio = 0.8
	}
	return &Service{
		store:   store,
		rules:   rules,
		opts:    opts,
		log:     opts.Logger,
		metrics: newMetrics(opts.Registerer, rules, opts.NearLimitRatio),
		calls:   sync.Pool{New: func() any { return new(call) }},
	}
}

// Decide answers one call whose message is data. Its errors are gRPC statuses:
// InvalidArgument for a message that breaks the protocol. A store out of reach is no
// error.
func (s *Service) Decide(ctx context.Context, data []byte) (*rlsv3.RateLimitResponse, error) {
	start := time.Now()
	c, _ := s.calls.Get().(*call)
	defer s.calls.Put(c)
	answer, err := s.decide(ctx, c, data)
	s.metrics.duration.Observe(time.Since(start).Seconds())
	if err != nil {
		s.metrics.invalid.Inc()
		if s.refusals.open() {
			s.log.Warn("refusing a call", slog.Any("error", err))
		}
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return answer, nil
}

func (s *Service) decide(ctx context.Context, c *call, data []byte) (*rlsv3.RateLimitResponse, error) {
	if err := wire.Decode(data, &c.req); err != nil {
		return nil, err
	}
	if c.req.Domain == "" {
		return nil, errors.New("rate limit domain must not be empty")
	}
	if len(c.req.Descriptors) == 0 {
		return nil, errors.New("rate limit descriptor list must not be empty")
	}
	rules := s.rules()
	c.plan(s, rules)
	c.take(ctx, s)
	answer := c.answer(s)
	s.metrics.count(rules, c)
	c.logDecisions(ctx, s.log)
	return answer, nil
}

// gate lets one log line a second through: a caller that sends nothing but mistakes must
// not fill the disk. Each kind of line has its own, so that none hides another.
type gate struct{ last atomic.Int64 } // Unix seconds

func (g *gate) open() bool {
	now := time.Now().Unix()
	last := g.last.Load()
	return last != now && g.last.CompareAndSwap(last, now)
}
