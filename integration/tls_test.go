//go:build integration

package integration

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sluice-rls/sluice/internal/proc"
)

// The names in the certificates of these tests.
const (
	serverName = "sluice.local"
	clientName = "envoy.local"
)

// certificates are the files of a sluice and of its Envoy.
type certificates struct {
	authority                        *proc.Authority
	cert, key, clientCert, clientKey string
}

func newCertificates(t *testing.T) certificates {
	t.Helper()
	c := certificates{authority: proc.NewAuthority(t)}
	c.cert, c.key = c.authority.Issue(t, serverName)
	c.clientCert, c.clientKey = c.authority.Issue(t, clientName)
	return c
}

// server are the settings of TLS; mutual asks clients for a certificate too.
func (c certificates) server(engine string, mutual bool) settings {
	s := settings{
		"GRPC_ENGINE": engine, "GRPC_SERVER_USE_TLS": "true",
		"GRPC_SERVER_TLS_CERT": c.cert, "GRPC_SERVER_TLS_KEY": c.key,
	}
	if mutual {
		s["GRPC_CLIENT_TLS_CACERT"], s["GRPC_CLIENT_TLS_SAN"] = c.authority.File, clientName
	}
	return s
}

var (
	// tlsPage is Envoy's side of TLS as the page has it, ownPart the part of it that shows
	// a certificate.
	tlsPage = regexp.MustCompile("(?s)## TLS\n.*?```yaml\n(.*?)```")
	ownPart = regexp.MustCompile(`(?s) +tls_certificates:.*?envoy\.key \}\n`)
)

// edit makes Envoy speak TLS to the service, as docs/envoy.md has it, with a certificate of
// its own or without.
func (c certificates) edit(t *testing.T, own bool) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "envoy.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := tlsPage.FindSubmatch(page)
	if found == nil || !ownPart.Match(found[1]) {
		t.Fatal("docs/envoy.md does not show how Envoy speaks TLS")
	}
	text := string(found[1])
	if !own {
		text = ownPart.ReplaceAllString(text, "")
	}
	text = strings.NewReplacer("/certs/ca.crt", c.authority.File, "/certs/envoy.crt", c.clientCert, "/certs/envoy.key", c.clientKey).Replace(text)
	const after = "    connect_timeout: 0.25s\n    typed_extension_protocol_options:\n"
	return []string{after, text + after}
}

func TestTLSBehindEnvoy(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for _, mutual := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s mutual=%v", engine, mutual), func(t *testing.T) {
				t.Parallel()
				c := newCertificates(t)
				e := startEdge(t, c.edit(t, mutual)...)
				startSluiceOn(t, e.replicas[0], exampleRules, c.server(engine, mutual))
				e.waitHealthy(1)
				newClient(t).drain(60, "GET", e.url("/search?user=%ff%fe"), "x-api-key", "opaque").obeys(t, 10, 5)
				if a := newClient(t).send("GET", e.url("/"), "x-api-key", strings.Repeat("k", 50_000)); a.status != http.StatusOK {
					t.Errorf("a long value: status = %d, want 200", a.status)
				}
				e.mustNotFail(t)
				if n := e.Stat("cluster.ratelimit.ssl.handshake"); n == 0 {
					t.Error("Envoy counts no TLS handshake")
				}
			})
		}
	}
}

// An Envoy that shows no certificate where one is asked for finds no replica.
func TestEnvoyWithoutACertificateIsRefused(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			c := newCertificates(t)
			e := startEdge(t, c.edit(t, false)...)
			startSluiceOn(t, e.replicas[0], exampleRules, c.server(engine, true))
			const failed = "cluster.ratelimit.health_check.failure"
			e.WaitStats(`cluster\.ratelimit\.health_check\..*`, func(stats map[string]int64) bool { return stats[failed] >= 4 })
			if stats := e.Stats(`cluster\.ratelimit\.(health_check\.success|membership_healthy)`); stats["cluster.ratelimit.health_check.success"] != 0 || stats["cluster.ratelimit.membership_healthy"] != 0 {
				t.Errorf("Envoy counts %v", stats)
			}
		})
	}
}

// Certificates are replaced under load, while connections come and go: no call is lost, and
// new handshakes see the new ones.
func TestRotationOfCertificatesLosesNoCall(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			c := newCertificates(t)
			e := startEdge(t, c.edit(t, true)...)
			env := c.server(engine, true)
			env["GRPC_MAX_CONNECTION_AGE"] = "1s"
			s := startSluiceOn(t, e.replicas[0], exampleRules, env)
			e.waitHealthy(1)
			stop := make(chan struct{})
			var load sync.WaitGroup
			for range 4 {
				client := newClient(t)
				load.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						if _, err := client.do("GET", e.url("/"), "x-api-key", "rotating"); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			const shaken = "cluster.ratelimit.ssl.handshake"
			serial := c.shown(t, s)
			for range 3 {
				c.authority.Issue(t, serverName) // over the files of the one before
				if next := c.shown(t, s); next.Cmp(serial) == 0 {
					t.Error("a handshake after the change sees the old certificate")
				} else {
					serial = next
				}
				before := e.Stat(shaken)
				e.WaitStats(`cluster\.ratelimit\.ssl\.handshake`, func(stats map[string]int64) bool { return stats[shaken] >= before+2 })
			}
			close(stop)
			load.Wait()
			e.mustNotFail(t)
		})
	}
}

// config is that of a client with a certificate.
func (c certificates) config(t *testing.T) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(c.authority.File)
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.LoadX509KeyPair(c.clientCert, c.clientKey)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: trusted, ServerName: serverName, Certificates: []tls.Certificate{own}, NextProtos: []string{"h2"},
	}
}

// client returns a client of the rate limit service, over TLS.
func (c certificates) client(t *testing.T, s *sluice) rlsv3.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:"+addr(s.grpc), grpc.WithTransportCredentials(credentials.NewTLS(c.config(t))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // nothing to lose
	return rlsv3.NewRateLimitServiceClient(conn)
}

// shown is the serial number of the certificate that a new connection sees.
func (c certificates) shown(t *testing.T, s *sluice) *big.Int {
	t.Helper()
	d := tls.Dialer{Config: c.config(t)}
	conn, err := d.DialContext(t.Context(), "tcp", addr(s.grpc))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it has said what it had to
	secure, ok := conn.(*tls.Conn)
	if !ok {
		t.Fatal("no TLS connection")
	}
	return secure.ConnectionState().PeerCertificates[0].SerialNumber
}
