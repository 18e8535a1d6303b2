//go:build integration && long

package integration

import (
	"crypto/tls"
	"fmt"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
)

// Ten thousand connections, each of which has made a call and is idle, with the client in
// this process and the service in its own. Both need as many open files.
func TestTenThousandConnections(t *testing.T) {
	const many = 10_000
	c := newCertificates(t)
	for name, test := range map[string]struct {
		env    settings
		client func(*testing.T, *sluice) rlsv3.RateLimitServiceClient
		secure *tls.Config
		most   int64
	}{
		"in the clear": {settings{"GRPC_ENGINE": "lean"}, func(t *testing.T, s *sluice) rlsv3.RateLimitServiceClient { t.Helper(); return s.client(t) }, nil, 200 * mebibyte},
		"TLS":          {c.server("lean", true), c.client, c.config(t), 500 * mebibyte},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSluice(t, exampleRules, test.env)
			msg := message(t, edgeRequest(descriptor("api_key", "many")))
			s.bounded(t, test.client(t, s), time.Minute, test.most, func() {
				for range many / 100 { // a greeting that takes too long would be cut
					var some sync.WaitGroup
					for range 100 {
						a := s.attack(t)
						some.Go(func() {
							if err := a.callOnce(test.secure, msg); err != nil {
								t.Error(err)
							}
						})
					}
					some.Wait()
				}
				t.Logf("%d MiB with %d idle connections", s.Resident()/mebibyte, many)
			})
			if got := s.metric(t, "ratelimit_decisions_total", `domain="edge"`); got < many {
				t.Errorf("%v decisions, want %d and more", got, many)
			}
		})
	}
}

// callOnce greets, over TLS unless that is nil, and makes a call; the connection stays.
func (a *attacker) callOnce(secure *tls.Config, msg []byte) error {
	if secure != nil {
		conn := tls.Client(a.conn, secure)
		if err := conn.HandshakeContext(a.t.Context()); err != nil {
			return err
		}
		a.conn, a.framer = conn, http2.NewFramer(&a.out, conn)
	}
	a.greet()
	a.call(1, msg)
	if !a.flush() {
		return fmt.Errorf("the service does not take a call from %v", a.conn.LocalAddr())
	}
	for {
		f, err := a.framer.ReadFrame()
		if err != nil {
			return err
		}
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
			return nil
		}
	}
}
