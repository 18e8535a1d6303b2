package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// result is what one run measured.
type result struct {
	usage
	calls   int64
	denied  int64
	elapsed time.Duration
	memory  int64
	latency *hdrhistogram.Histogram // µs, from the moment at which a call was due
}

// cpuMicros is the CPU of a call, that of Redis included, in µs.
func (r result) cpuMicros() float64 {
	return float64((r.server + r.redis).Microseconds()) / float64(r.calls)
}

func (r result) readsPerCall() float64 { return float64(r.reads) / float64(r.calls) }

// bytesCodec sends encoded messages and gives back the bytes of answers, so that the client
// takes as little of the machine as it can.
type bytesCodec struct{ encoding.CodecV2 }

// Marshal is part of encoding.CodecV2.
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errors.New("the codec sends bytes alone")
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal is part of encoding.CodecV2. Of an answer it keeps the overall code, which
// every server writes first.
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	over, ok := v.(*bool)
	b := data.Materialize()
	if !ok || len(b) < 2 || b[0] != 1<<3 {
		return errors.New("an answer that does not begin with its code")
	}
	*over = b[1] == byte(rlsv3.RateLimitResponse_OVER_LIMIT)
	return nil
}

// Name is part of encoding.CodecV2.
func (bytesCodec) Name() string { return "proto" }

// caller makes a call for a key, and tells whether it was denied.
type caller func(ctx context.Context, key int) (over bool, err error)

// dial makes connections to a gRPC server, and callers that share them.
func dial(addr string, conns, callers int, requests [][]byte) (all []caller, hangUp func(), err error) {
	var open []*grpc.ClientConn
	hangUp = func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}
	for range conns {
		conn, err := grpc.NewClient("passthrough:"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
		if err != nil {
			hangUp()
			return nil, nil, err
		}
		open = append(open, conn)
	}
	for i := range callers {
		conn := open[i%conns]
		all = append(all, func(ctx context.Context, key int) (over bool, err error) {
			err = conn.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, requests[key], &over)
			return over, err
		})
	}
	return all, hangUp, nil
}

// runOne starts a variant, loads it with a case and stops it.
func runOne(ctx context.Context, o options, c loadCase, v variant, rules string) (result, error) {
	s, err := startStack(ctx, o, v, rules)
	if err != nil {
		return result{}, err
	}
	defer s.stop()
	l := &load{opts: o, loadCase: c}
	var hangUp func()
	if c.envoy {
		if err := s.startEnvoy(ctx); err != nil {
			return result{}, err
		}
		l.callers, hangUp, err = dialHTTP(ctx, s.envoy.addr, envoyClients)
	} else {
		requests, err := c.requests()
		if err != nil {
			return result{}, err
		}
		l.callers, hangUp, err = dial(s.server.addr, o.conns, o.inFlight, requests)
		if err != nil {
			return result{}, err
		}
	}
	if err != nil {
		return result{}, err
	}
	defer hangUp()
	return l.run(ctx, s)
}

// load is one run of a case.
type load struct {
	loadCase
	opts     options
	callers  []caller
	from, to time.Time // the window in which calls count, by when they were due
}

// tally is what one worker saw.
type tally struct {
	calls, denied int64
	latency       *hdrhistogram.Histogram
	err           error
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 3)
}

func (l *load) run(ctx context.Context, s *stack) (result, error) {
	start := time.Now()
	l.from = start.Add(l.opts.warmup)
	l.to = l.from.Add(l.opts.duration)
	var due chan time.Time
	var wg sync.WaitGroup
	if l.rate > 0 {
		due = make(chan time.Time, int(l.rate)) // a second's worth: what is late is sent late
		wg.Go(func() { l.pace(ctx, start, due) })
	}
	tallies := make([]tally, len(l.callers))
	for i := range tallies {
		wg.Go(func() { tallies[i] = l.work(ctx, l.callers[i], due) })
	}
	time.Sleep(time.Until(l.from))
	before, err := s.usage(ctx)
	if err != nil {
		return result{}, err
	}
	time.Sleep(time.Until(l.to))
	after, err := s.usage(ctx)
	if err != nil {
		return result{}, err
	}
	wg.Wait()
	r := result{elapsed: l.opts.duration, latency: newHistogram(), usage: after.less(before)}
	for _, t := range tallies {
		if t.err != nil {
			return result{}, t.err
		}
		r.calls += t.calls
		r.denied += t.denied
		r.latency.Merge(t.latency)
	}
	if r.calls == 0 {
		return result{}, errors.New("no call was answered")
	}
	r.memory, err = s.server.resident()
	return r, err
}

// pace says when calls are due, as soon as they are.
func (l *load) pace(ctx context.Context, start time.Time, due chan<- time.Time) {
	defer close(due)
	interval := time.Duration(float64(time.Second) / l.rate)
	for at := start; at.Before(l.to); at = at.Add(interval) {
		if wait := time.Until(at); wait > 0 {
			time.Sleep(wait)
		}
		select {
		case due <- at:
		case <-ctx.Done():
			return
		}
	}
}

// work makes calls one after the other until the window closes.
func (l *load) work(ctx context.Context, call caller, due <-chan time.Time) tally {
	t := tally{latency: newHistogram()}
	key := l.picker()
	for {
		at := time.Now()
		if due != nil {
			var ok bool
			if at, ok = <-due; !ok {
				return t
			}
		} else if !at.Before(l.to) {
			return t
		}
		over, err := call(ctx, key())
		if err != nil {
			t.err = fmt.Errorf("calling: %w", err)
			return t
		}
		if at.Before(l.from) || !at.Before(l.to) {
			continue
		}
		t.calls++
		if over {
			t.denied++
		}
		_ = t.latency.RecordValue(time.Since(at).Microseconds())
	}
}
