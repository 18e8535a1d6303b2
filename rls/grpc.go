package rls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/sluice-rls/sluice/rls/wire"
)

// HealthService is the name under which gRPC health tells of the service; the empty
// name tells the same.
const HealthService = "ratelimit"

// ServerOptions are the optional settings of a Server. The zero value is the default.
type ServerOptions struct {
	// MaxConnectionAge is how long a connection lives before it is told to go away, so
	// that clients spread over new instances; 0 is for ever.
	MaxConnectionAge time.Duration
	// MaxConnectionAgeGrace is how long the calls of such a connection may still take;
	// 0 is for ever.
	MaxConnectionAgeGrace time.Duration
	// TLS is the server's side of TLS; nil serves plain HTTP/2.
	TLS *tls.Config
	// MaxBuffered bounds the bytes of requests that have come in part, over all connections
	// of the lean engine; 256 MiB if 0.
	MaxBuffered int64
	// Lean serves with the engine of rls/wire, which hands on to grpc-go all but the one
	// method; else grpc-go serves everything.
	Lean bool
}

// Server serves a Service over gRPC, with health and reflection beside it.
type Server struct {
	grpc   *grpc.Server
	engine *wire.Server // nil: grpc-go serves alone
	health *health.Server
	drain  chan struct{} // closed when streams must end
}

// maxStreams is how many calls may be open at once on one connection. Envoy opens another
// one when it has more.
const maxStreams = 4096

// windowSize is the flow-control window of streams and connections. A fixed one turns
// off grpc-go's estimator, which sends two frames more for each call on a connection
// that is otherwise idle.
const windowSize = 1 << 20

// NewServer returns a server that is not serving yet: its health is NOT_SERVING until
// SetServing.
func NewServer(s *Service, opts ServerOptions) *Server {
	drain := make(chan struct{})
	o := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.NumStreamWorkers(16), // spares a goroutine, and the growth of its stack, per call
		grpc.InitialWindowSize(windowSize),
		grpc.InitialConnWindowSize(windowSize),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			// Envoy's connection_keepalive pings each second where it is told to.
			MinTime:             200 * time.Millisecond,
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      opts.MaxConnectionAge,
			MaxConnectionAgeGrace: opts.MaxConnectionAgeGrace,
		}),
		grpc.UnaryInterceptor(s.recoverUnary),
		grpc.ChainStreamInterceptor(s.recoverStream, drainStreams(drain)),
	}
	if opts.TLS != nil {
		o = append(o, grpc.Creds(credentials.NewTLS(opts.TLS)))
	}
	srv := &Server{grpc: grpc.NewServer(o...), health: health.NewServer(), drain: drain}
	srv.grpc.RegisterService(serviceDesc(), s)
	healthpb.RegisterHealthServer(srv.grpc, srv.health)
	reflection.Register(srv.grpc)
	if opts.Lean {
		srv.engine = newEngine(s, srv.grpc, opts)
	}
	srv.SetServing(false)
	return srv
}

// Serve answers calls on ln until Shutdown or Stop, and closes it.
func (s *Server) Serve(ln net.Listener) error {
	if s.engine != nil {
		return s.engine.Serve(ln)
	}
	err := s.grpc.Serve(ln)
	if errors.Is(err, grpc.ErrServerStopped) { // the end came before the beginning
		return nil
	}
	return err
}

// SetServing sets what gRPC health answers.
func (s *Server) SetServing(serving bool) {
	st := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		st = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", st)
	s.health.SetServingStatus(HealthService, st)
}

// Shutdown refuses new connections, tells the open ones to go away and waits for the
// calls in flight; streams (health watches, reflection) are ended. When ctx is done it
// cuts what is left. It is called once.
func (s *Server) Shutdown(ctx context.Context) {
	s.health.Shutdown()
	close(s.drain)
	if s.engine != nil {
		s.engine.Shutdown(ctx)
		s.grpc.Stop()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
}

// Stop cuts all connections.
func (s *Server) Stop() {
	if s.engine != nil {
		s.engine.Stop()
	}
	s.grpc.Stop()
}

// serviceDesc is the generated description of the service with a handler that takes the
// request's bytes.
func serviceDesc() *grpc.ServiceDesc {
	d := rlsv3.RateLimitService_ServiceDesc
	d.HandlerType = (*any)(nil)
	d.Methods = []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}}
	return &d
}

func shouldRateLimit(srv any, ctx context.Context, dec func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // gRPC's order of arguments
	in := new(message)
	if err := dec(in); err != nil {
		return nil, err
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: rlsv3.RateLimitService_ShouldRateLimit_FullMethodName}
	return intercept(ctx, in, info, func(ctx context.Context, req any) (any, error) {
		s, _ := srv.(*Service)
		m, _ := req.(*message)
		reply, err := s.Answer(ctx, m.data, nil)
		if err != nil {
			return nil, err
		}
		return &message{reply}, nil
	})
}

func (s *Service) recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(info.FullMethod, p, debug.Stack())
		}
	}()
	return handle(ctx, req)
}

func (s *Service) recoverStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(info.FullMethod, p, debug.Stack())
		}
	}()
	return handle(srv, stream)
}

// panicked turns a panic into an error of its call, so that the process and the other
// calls go on.
func (s *Service) panicked(method string, p any, stack []byte) error {
	s.metrics.panics.Inc()
	s.log.Error("panic in a call",
		slog.String("method", method), slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(stack)))
	return status.Error(codes.Internal, "internal error")
}

// drainStreams ends streams when drain is closed: one open health watch would hold
// GracefulStop for ever.
func drainStreams(drain <-chan struct{}) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		go func() {
			select {
			case <-drain:
				cancel()
			case <-ctx.Done():
			}
		}()
		return handle(srv, &drainedStream{ServerStream: stream, ctx: ctx})
	}
}

// drainedStream is a stream whose context ends with the draining, and its reads too.
type drainedStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // grpc.ServerStream hands its context out this way
}

// Context is part of grpc.ServerStream.
func (s *drainedStream) Context() context.Context { return s.ctx }

// RecvMsg is part of grpc.ServerStream. The goroutine ends with the stream, at the
// latest when its handler has returned.
func (s *drainedStream) RecvMsg(m any) error {
	got := make(chan error, 1)
	go func() { got <- s.ServerStream.RecvMsg(m) }()
	select {
	case err := <-got:
		return err
	case <-s.ctx.Done():
		return status.Error(codes.Unavailable, "server is shutting down")
	}
}
