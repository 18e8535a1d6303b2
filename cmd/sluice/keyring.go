package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"

	"github.com/sluice-rls/sluice/config"
)

// keyring is what the gRPC port shows of itself and whom it lets in. Each handshake looks
// whether one of the files has changed, and reads all of them if so; files that cannot be
// used leave what was read before in force. It is safe for concurrent use.
type keyring struct {
	files config.ServerTLS
	log   *slog.Logger

	mu     sync.Mutex // guards what follows
	seen   [3]fs.FileInfo
	good   bool // what was seen last could be used
	config *tls.Config
	expiry time.Time
}

// serverTLS is TLS on the gRPC port; nil without.
func serverTLS(files config.ServerTLS, log *slog.Logger, reg prometheus.Registerer) (*tls.Config, error) {
	if !files.On() {
		return nil, nil //nolint:nilnil // no TLS is no mistake
	}
	k, err := newKeyring(files, log)
	if err != nil {
		return nil, err
	}
	return k.server(), reg.Register(k)
}

// newKeyring reads the files for the first time, when a mistake in them is an error.
func newKeyring(files config.ServerTLS, log *slog.Logger) (*keyring, error) {
	k := &keyring{files: files, log: log}
	k.seen = k.look()
	if err := k.read(); err != nil {
		return nil, err
	}
	return k, nil
}

// server is the configuration of a listener.
func (k *keyring) server() *tls.Config {
	c := newServerTLS()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.current(), nil }
	return c
}

// newServerTLS is what all handshakes have in common.
func newServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{http2.NextProtoTLS},
		// Of TLS 1.2 those that RFC 9113 section 9.2.2 lets HTTP/2 use; TLS 1.3 has its own.
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		// A ticket would let a client in whose authority is not trusted any more. Envoy keeps
		// its connections, so there is little to resume.
		SessionTicketsDisabled: true,
	}
}

// current is the configuration of a handshake that begins now.
func (k *keyring) current() *tls.Config {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.look()
	if sameFiles(now, k.seen) {
		return k.config
	}
	k.seen = now
	if err := k.read(); err != nil {
		k.log.Error("certificates of the gRPC port: those that were read before stay in force", slog.Any("error", err))
	} else {
		k.log.Info("certificates of the gRPC port read anew", slog.Time("not_after", k.expiry))
	}
	return k.config
}

// look tells the files of now from others; one that is missing is nil. Links are followed,
// so the swap of a Kubernetes volume is seen.
func (k *keyring) look() (files [3]fs.FileInfo) {
	for i, path := range []string{k.files.Cert, k.files.Key, k.files.ClientCA} {
		if info, err := os.Stat(path); err == nil {
			files[i] = info
		}
	}
	return files
}

func sameFiles(a, b [3]fs.FileInfo) bool {
	for i := range a {
		if a[i] == nil || b[i] == nil {
			if a[i] != b[i] {
				return false
			}
			continue
		}
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}

// read puts the contents of the files in force, all or none.
func (k *keyring) read() error {
	k.good = false
	certPEM, err := readSetting("GRPC_SERVER_TLS_CERT", k.files.Cert)
	if err != nil {
		return err
	}
	keyPEM, err := readSetting("GRPC_SERVER_TLS_KEY", k.files.Key)
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("GRPC_SERVER_TLS_CERT %q with GRPC_SERVER_TLS_KEY %q: %w", k.files.Cert, k.files.Key, err)
	}
	c := newServerTLS()
	c.Certificates = []tls.Certificate{cert}
	if k.files.ClientCA != "" {
		pem, err := readSetting("GRPC_CLIENT_TLS_CACERT", k.files.ClientCA)
		if err != nil {
			return err
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("GRPC_CLIENT_TLS_CACERT: %q holds no certificate in PEM form", k.files.ClientCA)
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
		if k.files.ClientSAN != "" {
			c.VerifyConnection = k.verifyName
		}
	}
	k.config, k.expiry, k.good = c, cert.Leaf.NotAfter, true
	return nil
}

// readSetting reads a file that a setting names.
func readSetting(setting, path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return data, nil
}

// verifyName wants a client's name; its chain has been verified before.
func (k *keyring) verifyName(state tls.ConnectionState) error {
	if err := state.PeerCertificates[0].VerifyHostname(k.files.ClientSAN); err != nil {
		return fmt.Errorf("client's certificate without the name of GRPC_CLIENT_TLS_SAN: %w", err)
	}
	return nil
}

var (
	certificateExpiry = prometheus.NewDesc("ratelimit_tls_certificate_expiry_timestamp_seconds",
		"When the certificate that the gRPC port shows ends.", nil, nil)
	certificatesGood = prometheus.NewDesc("ratelimit_tls_last_reload_successful",
		"1 if the certificates of the gRPC port are those in the files, 0 if the files cannot be used.", nil, nil)
)

// Describe is part of prometheus.Collector.
func (*keyring) Describe(ch chan<- *prometheus.Desc) {
	ch <- certificateExpiry
	ch <- certificatesGood
}

// Collect is part of prometheus.Collector. It looks at the files as a handshake does, so
// that the metrics are true where no client comes.
func (k *keyring) Collect(ch chan<- prometheus.Metric) {
	k.current()
	k.mu.Lock()
	defer k.mu.Unlock()
	good := 0.0
	if k.good {
		good = 1
	}
	ch <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue, float64(k.expiry.Unix()))
	ch <- prometheus.MustNewConstMetric(certificatesGood, prometheus.GaugeValue, good)
}
