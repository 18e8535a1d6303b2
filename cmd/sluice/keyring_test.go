package main

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-rls/sluice/config"
	"github.com/sluice-rls/sluice/internal/proc"
)

// engines are what can serve behind TLS, as the environment says it.
var engines = map[string]map[string]string{
	"grpc-go": {"GRPC_ENGINE": "grpc-go"},
	"lean":    {"GRPC_ENGINE": "lean"},
}

// with is the engine's environment with more in it, names and values in turn.
func with(engine map[string]string, more ...string) map[string]string {
	all := maps.Clone(engine)
	all["GRPC_SERVER_USE_TLS"] = "true"
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// tryWith makes a call with flags of TLS, and reports whether it was answered.
func (s *server) tryWith(flags ...string) (ok bool, errs string) {
	s.t.Helper()
	code, out, errs := sluice(s.t, append([]string{"try", "-addr", s.grpc, "-domain", "edge", "api_key=x", "-timeout", "5s"}, flags...)...)
	return code == exitOK && strings.HasPrefix(out, "OK"), errs
}

func TestServeOverTLS(t *testing.T) {
	t.Parallel()
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := proc.NewAuthority(t)
			cert, key := a.Issue(t, "sluice.local")
			s := start(t, with(engine, "GRPC_SERVER_TLS_CERT", cert, "GRPC_SERVER_TLS_KEY", key))
			f := func(want bool, flags ...string) {
				t.Helper()
				if ok, errs := s.tryWith(flags...); ok != want {
					t.Errorf("try %q answered: %v, want %v; %s", flags, ok, want, errs)
				}
			}
			f(true, "-cacert", a.File)
			f(true, "-cacert", a.File, "-servername", "sluice.local")
			f(false, "-cacert", a.File, "-servername", "other.local")
			f(false, "-tls") // nobody else knows the authority
			f(false, "-cacert", proc.NewAuthority(t).File)
			f(false, "-timeout", "500ms")
			if code, _ := get(t, "http://"+s.http+"/healthcheck"); code != http.StatusOK {
				t.Errorf("/healthcheck without TLS = %d", code)
			}
		})
	}
}

func TestTLSIsNewAndSpeaksHTTP2(t *testing.T) {
	t.Parallel()
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := proc.NewAuthority(t)
			cert, key := a.Issue(t, "sluice.local")
			s := start(t, with(engine, "GRPC_SERVER_TLS_CERT", cert, "GRPC_SERVER_TLS_KEY", key))
			f := func(name string, want bool, c *tls.Config) {
				t.Helper()
				c.RootCAs = pool(t, a)
				state, err := handshake(t, s.grpc, c)
				if ok := err == nil && state.NegotiatedProtocol == "h2"; ok != want {
					t.Errorf("%s: h2 is spoken: %v, want %v (%v)", name, ok, want, err)
				}
			}
			f("TLS 1.3", true, &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}})
			f("TLS 1.2", true, &tls.Config{MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}})
			f("TLS 1.1", false, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, NextProtos: []string{"h2"}}) //nolint:gosec // to be refused
			f("a cipher that HTTP/2 must not use", false, &tls.Config{
				MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA},
			})
			f("HTTP/1.1 alone", false, &tls.Config{NextProtos: []string{"http/1.1"}})
		})
	}
}

// pool trusts an authority.
func pool(t *testing.T, a *proc.Authority) *x509.CertPool {
	t.Helper()
	pem, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(pem)
	return p
}

func handshake(t *testing.T, addr string, c *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = conn.Close() }()
	secure, _ := conn.(*tls.Conn)
	return secure.ConnectionState(), nil
}

func TestClientsShowACertificate(t *testing.T) {
	t.Parallel()
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, stranger := proc.NewAuthority(t), proc.NewAuthority(t)
			cert, key := a.Issue(t, "sluice.local")
			s := start(t, with(engine,
				"GRPC_SERVER_TLS_CERT", cert, "GRPC_SERVER_TLS_KEY", key, "GRPC_CLIENT_TLS_CACERT", a.File, "GRPC_CLIENT_TLS_SAN", "envoy.local"))
			f := func(name string, want bool, flags ...string) {
				t.Helper()
				if ok, errs := s.tryWith(append(flags, "-cacert", a.File)...); ok != want {
					t.Errorf("%s: answered %v, want %v; %s", name, ok, want, errs)
				}
			}
			own := func(a *proc.Authority, name string) []string {
				cert, key := a.Issue(t, name)
				return []string{"-cert", cert, "-key", key}
			}
			f("the right one", true, own(a, "envoy.local")...)
			f("none", false)
			f("of a stranger", false, own(stranger, "envoy.local")...)
			f("in another name", false, own(a, "other.local")...)
		})
	}
}

// New handshakes find the new files, however they came; what cannot be used changes nothing.
func TestCertificatesAreReadAnew(t *testing.T) {
	t.Parallel()
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			old, next := proc.NewAuthority(t), proc.NewAuthority(t)
			mount(t, dir, "1", old, old)
			at := func(name string) string { return filepath.Join(dir, name) }
			s := start(t, with(engine,
				"GRPC_SERVER_TLS_CERT", at("tls.crt"), "GRPC_SERVER_TLS_KEY", at("tls.key"), "GRPC_CLIENT_TLS_CACERT", at("ca.crt")))
			clients := map[*proc.Authority][]string{}
			for _, a := range []*proc.Authority{old, next} {
				cert, key := a.Issue(t, "envoy.local")
				clients[a] = []string{"-cert", cert, "-key", key}
			}
			f := func(when string, server, client *proc.Authority, want bool) {
				t.Helper()
				if ok, errs := s.tryWith(append(clients[client], "-cacert", server.File)...); ok != want {
					t.Errorf("%s: answered %v, want %v; %s", when, ok, want, errs)
				}
			}
			f("before", old, old, true)
			f("before", old, next, false)

			mount(t, dir, "2", next, old) // as Kubernetes brings a new version of a Secret
			f("a new certificate", next, old, true)
			s.waitLine("read anew")
			mount(t, dir, "3", next, next)
			f("new authorities of clients", next, next, true)
			f("new authorities of clients", next, old, false)
			s.waitLine("read anew")

			overwrite(t, at("tls.crt"), "-----BEGIN CERTIFICATE-----\nhalf of it")
			f("a broken file", next, next, true)
			s.waitLine(`stay in force.*GRPC_SERVER_TLS_CERT.*tls.crt`)
			f("a broken file, again", next, next, true)
			if _, metrics := get(t, "http://"+s.http+"/metrics"); !strings.Contains(metrics, "ratelimit_tls_last_reload_successful 0") {
				t.Error("the metric does not tell of the broken file")
			}
			cert, key := old.Issue(t, "sluice.local")
			overwrite(t, at("tls.crt"), read(t, cert))
			f("a certificate whose key has not come yet", next, next, true)
			s.waitLine(`stay in force.*GRPC_SERVER_TLS_KEY.*does not match`)
			overwrite(t, at("tls.key"), read(t, key))
			f("its key", old, next, true)
			if line := s.waitLine(`read anew|stay in force`)[0]; line != "read anew" {
				t.Error("a mistake was logged again")
			}
			_, metrics := get(t, "http://"+s.http+"/metrics")
			for _, want := range []string{`ratelimit_tls_last_reload_successful 1`, `ratelimit_tls_certificate_expiry_timestamp_seconds [1-9]`} {
				if !regexp.MustCompile(want).MatchString(metrics) {
					t.Errorf("/metrics lacks %s", want)
				}
			}
			if err := os.Remove(at("ca.crt")); err != nil {
				t.Fatal(err)
			}
			f("a file that is gone", old, next, true)
			s.waitLine(`stay in force.*GRPC_CLIENT_TLS_CACERT.*no such file`)
		})
	}
}

// mount puts a server's certificate and the authorities of its clients into a folder as
// Kubernetes does: the names are links into a folder that a link stands for.
func mount(t *testing.T, dir, version string, server, clients *proc.Authority) {
	t.Helper()
	cert, key := server.Issue(t, "sluice.local")
	if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": clients.File} {
		overwrite(t, filepath.Join(dir, version, name), read(t, from))
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(version, filepath.Join(dir, "..new")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func overwrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// At the start a mistake in the files is an error that names setting and file.
func TestCertificatesThatCannotBeUsed(t *testing.T) {
	a := proc.NewAuthority(t)
	cert, key := a.Issue(t, "sluice.local")
	_, other := a.Issue(t, "other.local")
	garbage := filepath.Join(t.TempDir(), "garbage.pem")
	overwrite(t, garbage, "no PEM")
	f := func(files config.ServerTLS, want ...string) {
		t.Helper()
		_, err := newKeyring(files, slog.New(slog.DiscardHandler))
		if err == nil {
			t.Fatalf("%+v: no error", files)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: error %q lacks %q", files, err, w)
			}
		}
	}
	f(config.ServerTLS{Cert: garbage, Key: key}, "GRPC_SERVER_TLS_CERT", garbage, "certificate input")
	f(config.ServerTLS{Cert: cert, Key: garbage}, "GRPC_SERVER_TLS_KEY", garbage, "key input")
	f(config.ServerTLS{Cert: cert, Key: other}, "GRPC_SERVER_TLS_CERT", cert, "GRPC_SERVER_TLS_KEY", other, "does not match")
	f(config.ServerTLS{Cert: cert, Key: key + "x"}, "GRPC_SERVER_TLS_KEY", key+"x", "no such file")
	f(config.ServerTLS{Cert: cert, Key: key, ClientCA: garbage}, "GRPC_CLIENT_TLS_CACERT", garbage, "no certificate in PEM form")

	if code, _, errs := sluice(t, "serve", "-grpc-server-use-tls", "-grpc-server-tls-cert", garbage, "-grpc-server-tls-key", key); code != exitError || !strings.Contains(errs, garbage) {
		t.Errorf("serve = %d %q", code, errs)
	}
}

func TestTryWithHalfOfTLS(t *testing.T) {
	f := func(want string, flags ...string) {
		t.Helper()
		code, _, errs := sluice(t, append([]string{"try", "-domain", "d", "k=v"}, flags...)...)
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("try %q = %d %q, want %q", flags, code, errs, want)
		}
	}
	f("-cert and -key: one without the other", "-cert", "x")
	f("-cacert: open /does/not/exist", "-cacert", "/does/not/exist")
	f("-cert and -key: open /does/not/exist", "-cert", "/does/not/exist", "-key", "/does/not/exist")
}
