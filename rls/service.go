// Package rls answers the calls of Envoy's rate limit service, version 3
// (envoy/service/ratelimit/v3/rls.proto): it matches the descriptors of a call with
// the rules, asks the store for all of them at once, and makes the answer of the
// decisions.
//
// The way of a call through the files: grpc.go or engine.go (or json.go) takes the bytes,
// service.go has a scratch for them, call.go matches and plans the takes, answer.go turns
// decisions into the bytes of the statuses, headers.go and metadata.go add what clients
// see, metrics.go counts. Protobuf's types stop in this package, and it alone makes gRPC
// statuses. It knows neither which store it asks nor where rules come from.
//
// A Service is safe for concurrent use.
package rls

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
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

// Immediate is a store that decides some calls, or all of them, without waiting for
// anything but other calls in this process.
type Immediate interface {
	backend.Store
	// TakeNow is Take for the calls that need not wait. It reports false if this one does;
	// then nothing was decided or charged, and the store has to be waited for.
	TakeNow(takes []backend.Take, dst []backend.Decision) (bool, error)
}

// Service decides calls.
type Service struct {
	store   backend.Starter
	now     Immediate // the store, if it is one; else nil
	opts    Options
	log     *slog.Logger
	metrics *metrics
	calls   sync.Pool // of *call

	operator           atomic.Uint32 // a Switch
	refusals, failures gate          // of the log
}

// New returns a service that asks store for what the rules do not decide alone. Calls that
// an [Immediate] store decides are answered by Begin at once. rules is called once per call
// and returns the rules in force, never nil.
func New(store backend.Store, rules func() *descriptors.Rules, opts Options) *Service {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.NearLimitRatio == 0 {
		opts.NearLimitRatio = 0.8
	}
	s := &Service{
		store:   backend.Starting(store),
		opts:    opts,
		log:     opts.Logger,
		metrics: newMetrics(opts.Registerer, rules, opts.NearLimitRatio),
	}
	s.now, _ = store.(Immediate)
	s.calls.New = func() any { return &call{s: s, stripe: s.metrics.nextStripe()} }
	return s
}

// Answer answers one call whose message is data, and appends the encoded
// RateLimitResponse to dst. Its errors are gRPC statuses: InvalidArgument for a message
// that breaks the protocol, Unavailable for a call that the store failed: what decides
// calls while a store is out of reach stands before it, so it is no error of theirs.
func (s *Service) Answer(ctx context.Context, data, dst []byte) ([]byte, error) {
	c := s.take()
	defer c.release()
	if err := c.begin(data); err != nil {
		return dst, err
	}
	if err := c.ask(ctx); err != nil {
		return dst, err
	}
	return c.finish(dst), nil //nolint:contextcheck // a line of the log is no part of the call
}

// Begin is Answer for a caller that must not wait: if the store would have to be waited
// for, it answers nothing but hands over the rest of the call. Neither keeps data.
func (s *Service) Begin(data, dst []byte) (reply []byte, rest wire.Pending, err error) {
	c := s.take()
	if err := c.begin(data); err != nil {
		c.release()
		return dst, nil, err
	}
	decided, err := c.askNow()
	if !decided {
		return dst, c, nil
	}
	if err == nil {
		dst = c.finish(dst)
	}
	c.release()
	return dst, nil, err
}

// take gives the scratch for a call.
func (s *Service) take() *call {
	c, _ := s.calls.Get().(*call)
	return c
}

// largest is the size of the messages above which a call's scratch is not used again.
const largest = 64 << 10

// release gives the scratch back.
func (c *call) release() {
	if cap(c.msg) <= largest && cap(c.reply) <= largest {
		c.to = nil
		c.s.calls.Put(c)
	}
}

// begin takes a copy of the message, and does all that comes before the store.
func (c *call) begin(data []byte) error {
	c.start = time.Now()
	c.msg = append(c.msg[:0], data...)
	if err := c.decode(); err != nil {
		return c.refuse(err)
	}
	c.set = c.s.metrics.current()
	c.plan(c.s.Switch())
	return nil
}

func (c *call) decode() error {
	if err := wire.Decode(c.msg, &c.req); err != nil {
		return err
	}
	if c.req.Domain == "" {
		return errors.New("rate limit domain must not be empty")
	}
	if len(c.req.Descriptors) == 0 {
		return errors.New("rate limit descriptor list must not be empty")
	}
	return nil
}

// refuse makes the status of a call whose message breaks the protocol.
func (c *call) refuse(err error) error {
	s := c.s
	s.metrics.observe(c)
	s.metrics.invalid.Inc()
	if s.refusals.open() {
		s.log.Warn("refusing a call", slog.Any("error", err))
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

// undecided makes the status of a call that the store failed, and keeps what it said to
// the log.
func (c *call) undecided(err error) error {
	s := c.s
	s.metrics.observe(c)
	if p, ok := errors.AsType[*backend.PanicError](err); ok {
		return s.panicked(rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, p.Value, p.Stack)
	}
	s.metrics.unavailable.Inc()
	if s.failures.open() {
		s.log.Warn("store gave no decision", slog.Any("error", err))
	}
	return status.Error(codes.Unavailable, "the store of the limits gave no decision")
}

// Finish asks the store for a call that has begun, and is part of wire.Pending. The call is
// used up then.
func (c *call) Finish(deadline time.Time, to wire.Answerer) {
	c.to = to
	defer func() {
		if p := recover(); p != nil { // the call may be under way: its scratch is not used again
			to.Answer(nil, wireError(c.s.panicked(rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, p, debug.Stack())))
		}
	}()
	c.s.store.Start(deadline, c.takes, c.dst, c)
}

// Done is part of backend.Continuation: the store has decided. A panic is an error of this
// call alone.
func (c *call) Done(err error) (dirty backend.Flusher) {
	to := c.to
	defer func() {
		if p := recover(); p != nil {
			dirty = to.Answer(nil, wireError(c.s.panicked(rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, p, debug.Stack())))
		}
	}()
	if err != nil {
		err = c.undecided(err)
	} else {
		c.decideBans()
		c.reply = c.finish(c.reply[:0])
	}
	dirty = to.Answer(c.reply, wireError(err))
	c.release()
	return dirty
}

// finish appends the answer of a call that is decided, and counts it.
func (c *call) finish(dst []byte) []byte {
	if c.switched.decides() {
		dst = c.appendSwitched(dst)
	} else {
		dst = c.answer(dst)
	}
	c.s.metrics.count(c)
	c.s.metrics.observe(c)
	c.logDecisions()
	return dst
}

// gate lets one log line a second through: a caller that sends nothing but mistakes must
// not fill the disk. Each kind of line has its own, so that none hides another.
type gate struct{ last atomic.Int64 } // Unix seconds

func (g *gate) open() bool {
	now := time.Now().Unix()
	last := g.last.Load()
	return last != now && g.last.CompareAndSwap(last, now)
}
