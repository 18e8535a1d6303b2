package config

// ServerTLS is the server's side of TLS on the address of the rate limit service. All paths
// are those of files in PEM form; the zero value serves without TLS.
type ServerTLS struct {
	// Cert is the file of the server's certificate, with those between it and its
	// authority; empty without TLS. Key is the file of its key.
	Cert, Key string
	// ClientCA is a file of authorities. If it is set, clients have to show a certificate
	// that one of these has issued, and nobody else: the system's are not trusted here.
	ClientCA string
	// ClientSAN is a DNS name that the certificate of a client has to carry; empty: any.
	ClientSAN string
}

// On reports whether there is TLS.
func (t ServerTLS) On() bool { return t.Cert != "" }

// serverTLSRows are the settings of TLS on the gRPC port.
func (p *parser) serverTLSRows() []row {
	t := &p.s.GRPCTLS
	return []row{
		{env: "GRPC_SERVER_USE_TLS", def: "false", value: boolean(&p.serverTLS), help: "Serve gRPC over TLS (1.2 or newer). The other listeners have none"},
		{env: "GRPC_SERVER_TLS_CERT", value: text(&t.Cert), help: "File of the server's certificate and of those between it and its authority, in PEM form. This file and the two below are read anew when they have changed"},
		{env: "GRPC_SERVER_TLS_KEY", value: text(&t.Key), help: "File of the certificate's key"},
		{env: "GRPC_CLIENT_TLS_CACERT", value: text(&t.ClientCA), help: "File of authorities. If set, clients have to show a certificate of one of these; the system's authorities do not count"},
		{env: "GRPC_CLIENT_TLS_SAN", value: text(&t.ClientSAN), help: "DNS name that the certificate of a client has to carry"},
	}
}

// resolveServerTLS reports what is half said about TLS on the gRPC port, and files that
// cannot be read.
func (p *parser) resolveServerTLS() {
	t := &p.s.GRPCTLS
	files := []struct{ env, path string }{
		{"GRPC_SERVER_TLS_CERT", t.Cert},
		{"GRPC_SERVER_TLS_KEY", t.Key},
		{"GRPC_CLIENT_TLS_CACERT", t.ClientCA},
	}
	if !p.serverTLS {
		for _, name := range []string{files[0].env, files[1].env, files[2].env, "GRPC_CLIENT_TLS_SAN"} {
			// Who says false in so many words has turned off what the rest describes.
			if p.has(name) && !p.has("GRPC_SERVER_USE_TLS") {
				p.fail(name, "is set, and GRPC_SERVER_USE_TLS is not")
			}
		}
		*t = ServerTLS{}
		return
	}
	for _, f := range files {
		if f.path == "" {
			continue
		}
		if err := readable(f.path); err != nil {
			p.fail(f.env, "%w", err)
		}
	}
	for _, f := range files[:2] {
		if f.path == "" {
			p.fail("GRPC_SERVER_USE_TLS", "is set, and %s is not", f.env)
		}
	}
	if t.ClientSAN != "" && t.ClientCA == "" {
		p.fail("GRPC_CLIENT_TLS_SAN", "is set, and GRPC_CLIENT_TLS_CACERT is not, without which no certificate is asked for")
	}
}
