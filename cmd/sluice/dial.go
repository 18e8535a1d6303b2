package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// dialTLS is the client's side of TLS towards a running service, as flags say it.
type dialTLS struct {
	on                           bool
	authorities, cert, key, name string
}

// register adds the flags to a set.
func (d *dialTLS) register(f *flag.FlagSet) {
	f.BoolVar(&d.on, "tls", false, "speak TLS; each of the four flags below says so too")
	f.StringVar(&d.authorities, "cacert", "", "`file` of the authorities to trust; the system's if empty")
	f.StringVar(&d.cert, "cert", "", "`file` of our own certificate, where the service asks for one")
	f.StringVar(&d.key, "key", "", "`file` of its key")
	f.StringVar(&d.name, "servername", "", "`name` that the service's certificate has to carry; that of the address if empty")
}

// credentials are what the flags ask for.
func (d *dialTLS) credentials() (credentials.TransportCredentials, error) {
	if !d.on && d.authorities == "" && d.cert == "" && d.key == "" && d.name == "" {
		return insecure.NewCredentials(), nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: d.name}
	if d.authorities != "" {
		pem, err := os.ReadFile(d.authorities)
		if err != nil {
			return nil, fmt.Errorf("-cacert: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("-cacert: %q holds no certificate in PEM form", d.authorities)
		}
	}
	if (d.cert == "") != (d.key == "") {
		return nil, errors.New("-cert and -key: one without the other")
	}
	if d.cert != "" {
		cert, err := tls.LoadX509KeyPair(d.cert, d.key)
		if err != nil {
			return nil, fmt.Errorf("-cert and -key: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return credentials.NewTLS(c), nil
}
