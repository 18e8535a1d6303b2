package rls

import (
	"context"
	"net/http"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"

	"github.com/sluice-rls/sluice/rls/wire"
)

// newEngine returns a lean server of s. The methods other than ShouldRateLimit are those of
// other.
func newEngine(s *Service, other http.Handler, opts ServerOptions) *wire.Server {
	return wire.New(wire.Options{
		Method:                rlsv3.RateLimitService_ShouldRateLimit_FullMethodName,
		Handler:               lean{s},
		Other:                 other,
		TLS:                   opts.TLS,
		MaxStreams:            maxStreams,
		MaxConnectionAge:      opts.MaxConnectionAge,
		MaxConnectionAgeGrace: opts.MaxConnectionAgeGrace,
		Logger:                s.log,
	})
}

// lean is a Service as the engine calls it: with errors in the engine's own words, and
// without panics.
type lean struct{ service *Service }

// Begin is part of wire.Handler.
func (l lean) Begin(msg, dst []byte) (reply []byte, rest wire.Pending, err error) {
	defer l.recover(&rest, &err)
	reply, rest, err = l.service.Begin(msg, dst)
	if rest != nil {
		rest = leanRest{l, rest}
	}
	return reply, rest, wireError(err)
}

func (l lean) recover(rest *wire.Pending, err *error) {
	if p := recover(); p != nil {
		*rest = nil
		*err = wireError(l.service.panicked(rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, p))
	}
}

// leanRest is the rest of a call of a lean Service.
type leanRest struct {
	lean
	rest wire.Pending
}

// Finish is part of wire.Pending.
func (l leanRest) Finish(ctx context.Context, dst []byte) (reply []byte, err error) {
	defer l.recover(&l.rest, &err)
	reply, err = l.rest.Finish(ctx, dst)
	return reply, wireError(err)
}

// wireError gives a gRPC status the form that the engine knows.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	return &wire.Error{Code: uint32(st.Code()), Message: st.Message()}
}
