package rls_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls"
)

// listening serves store and the shop rules with the lean engine on a socket.
func listening(t *testing.T, network, address string, store backend.Store, opts rls.ServerOptions) (addr string) {
	t.Helper()
	rules := load(t, shop)
	opts.Lean = true
	srv := rls.NewServer(rls.New(store, func() *descriptors.Rules { return rules }, rls.Options{}), opts)
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return ln.Addr().String()
}

func connectTo(t *testing.T, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// away is a store that answers only when its caller has left.
type away struct{ left chan error }

// Take is part of backend.Store.
func (s away) Take(ctx context.Context, _ []backend.Take, _ []backend.Decision) error {
	<-ctx.Done()
	s.left <- ctx.Err()
	return ctx.Err()
}

func TestDeadlinesAndCancelsReachTheStore(t *testing.T) {
	for name, lean := range engines {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := away{make(chan error, 1)}
				_, conn := serve(t, store, lean)
				client := rlsv3.NewRateLimitServiceClient(conn)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				// Both ends know the deadline, and either may be the first to act on it.
				_, err := client.ShouldRateLimit(ctx, parseCall(t, "shop: user=x"))
				if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Unavailable {
					t.Errorf("after the deadline: %v", err)
				}
				if err := <-store.left; err == nil {
					t.Error("the store was not told of the deadline")
				}
				// A call that nobody waits for any more is not taken back by the lean engine:
				// what it may still wait for is over within the deadline.
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				called := make(chan error, 1)
				go func() {
					_, err := client.ShouldRateLimit(ctx, parseCall(t, "shop: user=x"))
					called <- err
				}()
				synctest.Wait() // the call is in the store
				cancel()
				if err := <-called; status.Code(err) != codes.Canceled {
					t.Errorf("after the cancel: %v", err)
				}
				if err := <-store.left; err == nil {
					t.Error("the store was not told of the cancel")
				}
			})
		})
	}
}

func TestLargeAndCompressedRequests(t *testing.T) {
	for name, lean := range engines {
		t.Run(name, func(t *testing.T) {
			_, conn := serve(t, memstore.New(memstore.Options{}), lean)
			client := rlsv3.NewRateLimitServiceClient(conn)
			f := func(size int, want codes.Code, opts ...grpc.CallOption) {
				t.Helper()
				req := parseCall(t, "shop: user="+strings.Repeat("v", size))
				answer, err := client.ShouldRateLimit(t.Context(), req, opts...)
				if status.Code(err) != want || want == codes.OK && answer.GetStatuses()[0].GetCurrentLimit() == nil {
					t.Errorf("%d bytes: %v, %v, want %v", size, answer, err, want)
				}
			}
			f(50_000, codes.OK)
			f(4<<20-100, codes.OK)
			f(4<<20+100, codes.ResourceExhausted)
			f(10, codes.OK, grpc.UseCompressor(gzip.Name))
			f(1<<20, codes.OK, grpc.UseCompressor(gzip.Name))
			f(5<<20, codes.ResourceExhausted, grpc.UseCompressor(gzip.Name))
			f(10, codes.OK)
		})
	}
}

// A thousand calls at once on one connection, which wait for the store or not.
func TestManyCallsAtOnce(t *testing.T) {
	for _, store := range []backend.Store{memstore.New(memstore.Options{}), atOnce{memstore.New(memstore.Options{})}} {
		addr := listening(t, "tcp", "127.0.0.1:0", store, rls.ServerOptions{})
		client := rlsv3.NewRateLimitServiceClient(connectTo(t, addr))
		req := parseCall(t, "shop: free=x & user=y")
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if answer, err := client.ShouldRateLimit(t.Context(), req); err != nil || len(answer.GetStatuses()) != 2 {
					t.Errorf("%v, %v", answer, err)
				}
			})
		}
		wg.Wait()
	}
}

// Connections that are told to go away lose no call.
func TestRotationLosesNoCall(t *testing.T) {
	addr := listening(t, "tcp", "127.0.0.1:0", memstore.New(memstore.Options{}), rls.ServerOptions{MaxConnectionAge: 300 * time.Millisecond, MaxConnectionAgeGrace: time.Minute})
	client := rlsv3.NewRateLimitServiceClient(connectTo(t, addr))
	req := parseCall(t, "shop: free=x")
	end := time.Now().Add(1500 * time.Millisecond)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for time.Now().Before(end) {
				if _, err := client.ShouldRateLimit(t.Context(), req); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A client may ping each second, and without a call: Envoy's connection_keepalive does.
func TestKeepaliveIsWelcome(t *testing.T) {
	addr := listening(t, "tcp", "127.0.0.1:0", memstore.New(memstore.Options{}), rls.ServerOptions{})
	conn := connectTo(t, addr, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: time.Second, PermitWithoutStream: true}))
	for range 3 {
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listening(t, "unix", path, atOnce{memstore.New(memstore.Options{})}, rls.ServerOptions{})
	conn := connectTo(t, "unix:"+path)
	if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), parseCall(t, "shop: user=x")); err != nil {
		t.Error(err)
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}

// selfSigned is a certificate for this machine, and the pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

func TestTLSWithClientCertificates(t *testing.T) {
	cert, pool := selfSigned(t)
	addr := listening(t, "tcp", "127.0.0.1:0", memstore.New(memstore.Options{}), rls.ServerOptions{TLS: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}})
	f := func(own []tls.Certificate, want codes.Code) {
		t.Helper()
		creds := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: own})
		conn := connectTo(t, addr, grpc.WithTransportCredentials(creds))
		_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), parseCall(t, "shop: user=x"))
		if status.Code(err) != want {
			t.Errorf("with %d certificates: %v, want %v", len(own), err, want)
		}
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != want {
			t.Errorf("health with %d certificates: %v, want %v", len(own), err, want)
		}
	}
	f([]tls.Certificate{cert}, codes.OK)
	f(nil, codes.Unavailable)
	var d tls.Dialer
	d.Config = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{cert}}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if n, err := conn.Read(make([]byte, 100)); err == nil {
		t.Errorf("without ALPN %d bytes came", n)
	}
}
