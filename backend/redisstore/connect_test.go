package redisstore_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/redisstore"
	"github.com/sluice-rls/sluice/internal/proc"
)

// R70: TLS checks the name, takes an authority and a certificate of its own.
// TestConnect reaches one server in all ways.
func TestConnect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newAuthority(t)
	ca.issue(t, dir, "server", "redis.shop.test")
	ca.issue(t, dir, "client", "sluice")
	socket := filepath.Join(dir, "s")
	if len(socket) > 100 { // a socket's path is bounded
		t.Chdir(dir)
		socket = "s"
	}
	port := strconv.Itoa(proc.FreePort(t))
	addr, _ := proc.Redis(t,
		"--unixsocket", filepath.Join(dir, "s"), "--tls-port", port, "--tls-auth-clients", "yes",
		"--tls-ca-cert-file", filepath.Join(dir, "ca.pem"),
		"--tls-cert-file", filepath.Join(dir, "server.pem"), "--tls-key-file", filepath.Join(dir, "server.key"),
		"--user", "default", "off", "--user", "shop-user", "on", ">:p@ss/#w%rd:", "~*", "+@all")
	tlsAddr := net.JoinHostPort("127.0.0.1", port)
	good := redisstore.Options{Addrs: []string{addr}, Username: "shop-user", Password: ":p@ss/#w%rd:"}
	with := func(change func(*redisstore.Options)) redisstore.Options {
		o := good
		change(&o)
		return o
	}
	trusted := ca.client(t, dir, "redis.shop.test")
	for name, o := range map[string]redisstore.Options{
		"host and port": good,
		"database":      with(func(o *redisstore.Options) { o.DB = 3 }),
		"unix socket":   with(func(o *redisstore.Options) { o.Network, o.Addrs = "unix", []string{socket} }),
		"tls":           with(func(o *redisstore.Options) { o.Addrs, o.TLS = []string{tlsAddr}, trusted }),
	} {
		t.Run(name, func(t *testing.T) { take(t, open(t, o), perDay(name, 10, 1)) })
	}
	for name, o := range map[string]struct {
		kind string
		redisstore.Options
	}{
		"wrong password": {redisstore.KindAuth, with(func(o *redisstore.Options) { o.Password = "hunter2" })},
		"unknown authority": {redisstore.KindTLS, with(func(o *redisstore.Options) {
			o.Addrs, o.TLS = []string{tlsAddr}, &tls.Config{ServerName: "redis.shop.test"}
		})},
		"other name": {redisstore.KindTLS, with(func(o *redisstore.Options) {
			o.Addrs, o.TLS = []string{tlsAddr}, ca.client(t, dir, "other.shop.test")
		})},
	} {
		t.Run(name, func(t *testing.T) { failure(t, open(t, o.Options), t.Context(), o.kind) })
	}
}

// authority is a certificate authority of the test's own.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t), cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}}
	a.pem = a.sign(t, a.cert, a.key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign returns the certificate of a key.
func (a *authority) sign(t *testing.T, cert *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue writes a certificate with its key and the authority's to files.
func (a *authority) issue(t *testing.T, dir, file, name string) {
	t.Helper()
	key := newKey(t)
	cert := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
	}, key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string][]byte{
		file + ".pem": cert, file + ".key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), "ca.pem": a.pem,
	} {
		if err := os.WriteFile(filepath.Join(dir, path), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// client is the configuration of a client that trusts the authority.
func (a *authority) client(t *testing.T, dir, server string) *tls.Config {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.pem)
	return &tls.Config{RootCAs: roots, ServerName: server, Certificates: []tls.Certificate{cert}}
}

// R68, R69: failover by Sentinel, with passwords of their own for servers and sentinels.
// TestSentinel asks a sentinel with a password of its own for the master, and follows it
// after a failover.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master, p := proc.Redis(t, "--requirepass", "master-secret", "--masterauth", "master-secret")
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		t.Fatal(err)
	}
	replica, _ := proc.Redis(t, "--requirepass", "master-secret", "--masterauth", "master-secret", "--replicaof", host+" "+port,
		"--repl-diskless-sync-delay", "0")
	sentinelPort := proc.FreePort(t)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := strings.Join([]string{
		"port " + strconv.Itoa(sentinelPort), "bind 127.0.0.1", "requirepass sentinel-secret",
		"sentinel monitor shop " + host + " " + port + " 1", "sentinel auth-pass shop master-secret",
		"sentinel down-after-milliseconds shop 200", "sentinel failover-timeout shop 1000", "",
	}, "\n")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := proc.Start(t, proc.Options{
		Name: "sentinel", Path: proc.Find(t, "redis-server"), Args: []string{conf, "--sentinel"},
	})
	sentinel.WaitLog(`\+slave slave`)
	store := open(t, redisstore.Options{
		Type: redisstore.Sentinel, MasterName: "shop", Addrs: []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(sentinelPort))},
		Password: "master-secret", SentinelPassword: "sentinel-secret",
	})
	take(t, store, perDay("k", 10, 3))
	c := client(t, replica)
	c.Options().Password = "master-secret"
	for c.Exists(t.Context(), "rl1:k").Val() == 0 {
		select {
		case <-t.Context().Done():
			t.Fatal("the take never reached the replica")
		default:
		}
	}
	p.Stop()
	sentinel.WaitLog(`\+switch-master`)
	for {
		got := make([]backend.Decision, 1)
		if err := store.Take(t.Context(), []backend.Take{perDay("k", 10, 1)}, got); err == nil {
			if got[0].Remaining() != 6 {
				t.Errorf("%d tokens at the new master, want 6", got[0].Remaining())
			}
			return
		}
	}
}

func TestOptions(t *testing.T) {
	f := func(o redisstore.Options, want string) {
		t.Helper()
		if _, err := redisstore.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v): %v, want an error with %q", o, err, want)
		}
	}
	f(redisstore.Options{}, "no address")
	f(redisstore.Options{Addrs: []string{"a:1", "b:1"}}, "2 addresses for one server")
	f(redisstore.Options{Type: redisstore.Sentinel, Addrs: []string{"a:1"}}, "no name of the master")
	f(redisstore.Options{Type: redisstore.Cluster, Addrs: []string{"a:1"}, DB: 2}, "database 2: a cluster has only 0")
	f(redisstore.Options{Type: redisstore.Cluster, Addrs: []string{"/s"}, Network: "unix"}, "a unix socket is for one server only")
}

// TestLogTo is not parallel: the client's logger is the process's.
func TestLogTo(t *testing.T) {
	var text bytes.Buffer
	redisstore.LogTo(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer redisstore.LogTo(slog.New(slog.DiscardHandler))
	nobody := net.JoinHostPort("127.0.0.1", strconv.Itoa(proc.FreePort(t)))
	store, err := redisstore.New(redisstore.Options{Addrs: []string{nobody}, Password: "hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	failure(t, store, t.Context(), redisstore.KindNetwork)
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(text.String(), "level=DEBUG") || strings.Contains(text.String(), "hunter2") {
		t.Errorf("logged %q, want what the client says, at level debug", text.String())
	}
}
