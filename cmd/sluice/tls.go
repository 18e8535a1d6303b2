package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/sluice-rls/sluice/config"
)

// redisTLS is the client's side of TLS towards Redis; nil without TLS. Our own
// certificate is read anew for each connection, so that one that was replaced acts
// without a restart.
func redisTLS(r config.Redis) (*tls.Config, error) {
	if !r.TLS {
		return nil, nil //nolint:nilnil // no TLS is no mistake
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.CACert != "" {
		pool, err := authorities(r.CACert)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	if r.ClientCert != "" {
		load := func() (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(r.ClientCert, r.ClientKey)
			return &cert, err
		}
		if _, err := load(); err != nil {
			return nil, fmt.Errorf("loading REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	if r.SkipHostnameVerification {
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(state tls.ConnectionState) error { return verifyChain(state, c.RootCAs) }
	}
	return c, nil
}

// authorities are the system's and those of a file.
func authorities(path string) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading REDIS_TLS_CACERT: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading REDIS_TLS_CACERT: %q holds no certificate in PEM form", path)
	}
	return pool, nil
}

// verifyChain is the usual check of a certificate, but for the name in it.
func verifyChain(state tls.ConnectionState, roots *x509.CertPool) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server shows no certificate")
	}
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, cert := range state.PeerCertificates[1:] {
		o.Intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(o)
	return err
}
