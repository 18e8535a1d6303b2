package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-rls/sluice/admin"
	"github.com/sluice-rls/sluice/rls"
)

// listeners are the addresses of the process: gRPC and some of HTTP.
type listeners struct {
	grpc   net.Listener
	server *rls.Server
	pages  []*page
}

// page is one HTTP address.
type page struct {
	name     string // for people
	listener net.Listener
	server   *http.Server
}

// listen opens all addresses or none.
func listen(p *process, service *rls.Service) (*listeners, error) {
	s := p.settings
	public := admin.New(admin.Options{
		Decider:  service,
		Healthy:  p.health.err,
		Ready:    p.health.parts,
		Gatherer: p.registry,
	})
	debug := admin.NewDebug(admin.DebugOptions{Rules: p.book.rules, Gatherer: p.registry, Switches: p.switches, Leases: p.store.leasesPage()})
	l := &listeners{server: p.grpc}
	network, address := s.GRPCListen()
	var err error
	names := "GRPC_HOST, GRPC_PORT"
	if network == "unix" {
		names = "GRPC_UDS"
		removeStale(address)
	}
	if l.grpc, err = open(names, network, address); err != nil {
		return nil, err
	}
	type wanted struct {
		name, settings, address string
		handler                 http.Handler
	}
	pages := []wanted{
		{"http", "HOST, PORT", s.HTTPAddr(), public},
		{"debug", "DEBUG_HOST, DEBUG_PORT", s.DebugAddr(), debug},
	}
	if s.PrometheusAddr != "" {
		mux := http.NewServeMux()
		mux.Handle(s.PrometheusPath, admin.Metrics(p.registry))
		pages = append(pages, wanted{"metrics", "PROMETHEUS_ADDR", s.PrometheusAddr, mux})
	}
	for _, w := range pages {
		ln, err := open(w.settings, "tcp", w.address)
		if err != nil {
			l.close()
			return nil, err
		}
		page := newPage(w.name, ln, w.handler)
		page.server.ErrorLog = slog.NewLogLogger(p.log.Handler(), slog.LevelWarn)
		l.pages = append(l.pages, page)
	}
	return l, nil
}

func newPage(name string, ln net.Listener, h http.Handler) *page {
	return &page{name: name, listener: ln, server: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}}
}

// removeStale removes the socket of a process that was killed: nobody listens at it.
func removeStale(path string) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return
	}
	var d net.Dialer
	conn, err := d.DialContext(context.Background(), "unix", path)
	if err == nil {
		_ = conn.Close()
		return
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path) // if that fails, listening says why
	}
}

// open listens, and says on failure which settings name the address.
func open(settings, network, address string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s (settings %s): %w", address, settings, err)
	}
	return ln, nil
}

// serve starts the servers in group.
func (l *listeners) serve(group *errgroup.Group) {
	group.Go(func() error { return l.server.Serve(l.grpc) })
	for _, p := range l.pages {
		group.Go(func() error {
			if err := p.server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving %s: %w", p.name, err)
			}
			return nil
		})
	}
}

// shutdown ends the HTTP servers; gRPC ends by itself.
func (l *listeners) shutdown(ctx context.Context) {
	for _, p := range l.pages {
		if p.server.Shutdown(ctx) != nil {
			_ = p.server.Close()
		}
	}
}

// close closes what has been opened and not served.
func (l *listeners) close() {
	_ = l.grpc.Close()
	for _, p := range l.pages {
		_ = p.listener.Close()
	}
}

// greet tells a person what was loaded, where the process listens and what to try. In a
// log for machines it is one record.
func (p *process) greet(ctx context.Context, w io.Writer) {
	if p.settings.LogFormat == "json" {
		attrs := []slog.Attr{
			slog.String("version", versionText()), slog.String("buckets", p.store.place),
			slog.String("grpc", p.ears.grpc.Addr().String()), slog.String("grpc_tls", p.tlsMode()),
		}
		for _, page := range p.ears.pages {
			attrs = append(attrs, slog.String(page.name, page.listener.Addr().String()))
		}
		p.log.LogAttrs(ctx, slog.LevelInfo, "listening", attrs...)
		return
	}
	rules := p.book.rules()
	from := "the built-in example"
	if path, examples := p.settings.RulesPath(); !examples {
		from = path
	}
	_, _ = fmt.Fprintf(w, "sluice %s: %s in %s from %s, buckets in %s\n", versionText(),
		plural(rules.Len(), "rule"), plural(len(rules.Domains()), "domain"), from, p.store.place)
	_, _ = fmt.Fprintf(w, "  gRPC %s", p.ears.grpc.Addr())
	for _, page := range p.ears.pages {
		_, _ = fmt.Fprintf(w, ", %s %s", page.name, page.listener.Addr())
	}
	_, _ = fmt.Fprintln(w)
	secure := p.tlsMode()
	if secure != "off" {
		_, _ = fmt.Fprintf(w, "  TLS on gRPC: %s\n", secure)
	}
	if _, examples := p.settings.RulesPath(); examples && secure == "off" {
		_, _ = fmt.Fprintln(w, `  try: go run ./cmd/sluice try -domain edge api_key=shop-a "route=POST /orders"`)
	}
}

// tlsMode names what TLS there is on the gRPC port.
func (p *process) tlsMode() string {
	switch t := p.settings.GRPCTLS; {
	case !t.On():
		return "off"
	case t.ClientCA == "":
		return "server certificate"
	}
	return "certificates of both sides"
}
