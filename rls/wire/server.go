package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// Options are the settings of a Server. Method, Handler and Other are required; the zero
// values of the others are the defaults.
type Options struct {
	// Method is the path of the method that Handler answers,
	// "/package.Service/Method".
	Method  string
	Handler Handler
	// Other answers every other request, as an HTTP/2 server of net/http would have it
	// answer: grpc.Server is such a handler.
	Other http.Handler
	// TLS is the server's side of TLS, to which h2 is added as its protocol; nil serves
	// HTTP/2 in the clear.
	TLS *tls.Config
	// MaxStreams is how many calls of one connection may be open at once; 4096 if 0.
	MaxStreams uint32
	// MaxBuffered bounds the bytes of requests that have come in part, over all
	// connections; 256 MiB if 0. One connection may have a quarter of it, but for one
	// message. What goes beyond it is refused.
	MaxBuffered int64
	// MaxConnectionAge is how long a connection lives, give or take a tenth, before it is
	// told to go away; 0 is for ever.
	MaxConnectionAge time.Duration
	// MaxConnectionAgeGrace is how long the calls of such a connection may still take; 0
	// is for ever.
	MaxConnectionAgeGrace time.Duration
	// Logger takes the log, whose messages are of level debug; nil discards them.
	Logger *slog.Logger
}

// The bounds on what a peer may keep waiting or make the server keep. Times are counted in
// ticks of the server's clock, which spare a timer per connection.
const (
	tick           = 250 * time.Millisecond
	handshakeTicks = uint32(10 * time.Second / tick) // from the accept to the first SETTINGS
	stallTicks     = uint32(20 * time.Second / tick) // a write, an answer that no window lets out, or the next part of a message
	drainTicks     = uint32(2 * time.Second / tick)  // for the acknowledgement of a GOAWAY
)

// Server is an HTTP/2 server for one gRPC method that is asked very often, and for others
// that are not. Make one with New.
type Server struct {
	opts Options
	log  *slog.Logger
	now  atomic.Uint32 // ticks, from 1
	// buffered is the number of bytes of requests that have come in part.
	buffered atomic.Int64

	mu        sync.Mutex // guards what follows
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	draining  bool
	stopped   bool
	stop      chan struct{} // closed by Stop

	serving sync.WaitGroup // the connections
	all     sync.WaitGroup // what else the server has started
}

// New returns a server that does not serve yet.
func New(o Options) *Server {
	if o.MaxStreams == 0 {
		o.MaxStreams = 4096
	}
	if o.MaxBuffered == 0 {
		o.MaxBuffered = 256 << 20
	}
	if o.TLS != nil && !slices.Contains(o.TLS.NextProtos, http2.NextProtoTLS) {
		o.TLS = o.TLS.Clone()
		o.TLS.NextProtos = append(o.TLS.NextProtos, http2.NextProtoTLS)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		opts: o, log: o.Logger, stop: make(chan struct{}),
		listeners: make(map[net.Listener]struct{}), conns: make(map[*conn]struct{}),
	}
	s.now.Store(1)
	return s
}

// Serve answers what comes to ln until Shutdown or Stop, whereupon it returns nil, or
// until ln fails. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	defer func() { _ = ln.Close() }()
	if !s.listen(ln) {
		return nil
	}
	var wait time.Duration
	for {
		nc, err := ln.Accept()
		if err != nil {
			if s.ending() {
				return nil
			}
			if !temporary(err) {
				return err
			}
			// Too many open files, mostly: others may close theirs soon.
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			s.log.Warn("accepting a connection", slog.Any("error", err), slog.Duration("again_in", wait))
			if !s.pause(wait) {
				return nil
			}
			continue
		}
		wait = 0
		s.begin(nc)
	}
}

// temporary reports whether accepting may work again.
func temporary(err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	e, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && e.Temporary()
}

func (s *Server) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stop:
		return false
	}
}

// listen notes a listener, and starts the server's clock with the first.
func (s *Server) listen(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	if len(s.listeners) == 0 {
		s.all.Go(s.tend)
	}
	s.listeners[ln] = struct{}{}
	return true
}

func (s *Server) ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// begin serves a connection in a goroutine of its own.
func (s *Server) begin(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		_ = nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.serving.Go(func() {
		c.serve()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// tend is the server's clock: it ends what has lasted too long.
func (s *Server) tend() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			now := s.now.Add(1)
			for _, c := range s.open() {
				c.tend(now)
			}
		case <-s.stop:
			return
		}
	}
}

func (s *Server) open() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// age is the tick at which a connection that begins now is told to go; 0 is never. The
// ages differ, so that connections that began together do not end together.
func (s *Server) age() uint32 {
	if s.opts.MaxConnectionAge <= 0 {
		return 0
	}
	spread := 0.9 + 0.2*rand.Float64()
	ticks := float64(s.opts.MaxConnectionAge) * spread / float64(tick)
	return s.now.Load() + uint32(min(max(ticks, 1), 1<<30))
}

// Shutdown closes the listeners, tells the peers to go away and waits until the calls in
// flight are answered. When ctx is done it cuts what is left.
func (s *Server) Shutdown(ctx context.Context) {
	s.refuse()
	for _, c := range s.open() {
		c.goAway()
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.serving.Wait()
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	}
	s.Stop()
	<-gone
}

// refuse closes the listeners; no connection begins after it.
func (s *Server) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for ln := range s.listeners {
		_ = ln.Close()
	}
}

// Stop closes listeners and connections, and waits for all that the server has started.
func (s *Server) Stop() {
	s.refuse()
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
	}
	s.mu.Unlock()
	for _, c := range s.open() {
		c.cut(net.ErrClosed)
	}
	s.serving.Wait()
	s.all.Wait()
}

// reserve takes n bytes of what all requests that have come in part may take.
func (s *Server) reserve(n int) bool {
	if s.buffered.Add(int64(n)) <= s.opts.MaxBuffered {
		return true
	}
	s.buffered.Add(-int64(n))
	return false
}

func (s *Server) unreserve(n int) { s.buffered.Add(-int64(n)) }
