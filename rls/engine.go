package rls

import (
	"net/http"
	"runtime/debug"

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
		MaxBuffered:           opts.MaxBuffered,
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
	defer func() {
		if p := recover(); p != nil {
			rest, err = nil, wireError(l.service.panicked(rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, p, debug.Stack()))
		}
	}()
	reply, rest, err = l.service.Begin(msg, dst)
	return reply, rest, wireError(err)
}

// wireError gives a gRPC status the form that the engine knows.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	return &wire.Error{Code: uint32(st.Code()), Message: st.Message()}
}
