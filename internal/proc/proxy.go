package proc

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a client and a server over TCP, and does to their connections what a
// bad network does. Its methods are safe for concurrent use.
type Proxy struct {
	listener net.Listener
	working  sync.WaitGroup

	mu     sync.Mutex // guards the rest
	target string
	delay  time.Duration
	refuse bool
	stall  chan struct{} // nil, or closed when the stall ends
	closed bool
	conns  map[net.Conn]struct{}
}

// NewProxy starts a proxy before the server at target, which need not be there yet. It ends
// with the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("starting a proxy: %v", err)
	}
	p := &Proxy{listener: l, target: target, conns: make(map[net.Conn]struct{})}
	p.working.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Addr is the host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay makes everything from the server come so much later.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Stall lets connections be and nothing pass, in either direction, until Resume.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stall == nil {
		p.stall = make(chan struct{})
	}
}

// Resume ends a stall; what was held up passes.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stall != nil {
		close(p.stall)
		p.stall = nil
	}
}

// Reset resets all connections. New ones are made as ever.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetLocked()
}

// Refuse says whether new connections are reset at once; with true all that there are, too.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
	if refuse {
		p.resetLocked()
	}
}

// Retarget sends new connections to another server. Those that there are stay, as they do
// when a name or a virtual address moves.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *Proxy) resetLocked() {
	for c := range p.conns {
		reset(c)
	}
}

// reset closes a connection with an RST, not a FIN.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // of a connection that is closed already
	}
	c.Close() //nolint:errcheck // nothing is to be sent any more
}

func (p *Proxy) close() {
	p.Resume()
	p.listener.Close() //nolint:errcheck // nothing is to be accepted any more
	p.mu.Lock()
	p.closed = true
	p.resetLocked()
	p.mu.Unlock()
	p.working.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.working.Go(func() { p.serve(client) })
	}
}

// serve passes on what two ends say until one of them is closed.
func (p *Proxy) serve(client net.Conn) {
	defer reset(client)
	target, ok := p.join(client)
	if !ok {
		return
	}
	defer p.leave(client)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	cancel()
	if err != nil {
		return
	}
	defer reset(server)
	if _, ok := p.join(server); !ok {
		return
	}
	defer p.leave(server)
	var both sync.WaitGroup
	both.Go(func() { p.pump(server, client, false) })
	both.Go(func() { p.pump(client, server, true) })
	both.Wait()
}

// join notes a connection, and reports false if it is to be reset at once.
func (p *Proxy) join(c net.Conn) (target string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		return "", false
	}
	p.conns[c] = struct{}{}
	return p.target, true
}

func (p *Proxy) leave(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// chunk is some bytes on their way.
type chunk struct {
	data []byte
	due  time.Time
}

// pump passes on what comes from one end, and closes both when it ends. One goroutine
// reads and another writes, so that a delay does not make the connection slower as well.
func (p *Proxy) pump(to, from net.Conn, delayed bool) {
	chunks := make(chan chunk, 1024)
	var writing sync.WaitGroup
	writing.Go(func() {
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			p.held()
			if _, err := to.Write(c.data); err != nil {
				reset(from)
			}
		}
	})
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			break
		}
		c := chunk{data: append([]byte(nil), buffer[:n]...)}
		if delayed {
			c.due = time.Now().Add(p.latency())
		}
		chunks <- c
	}
	close(chunks)
	writing.Wait()
	reset(to)
}

func (p *Proxy) latency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// held returns once there is no stall.
func (p *Proxy) held() {
	for {
		p.mu.Lock()
		stall := p.stall
		p.mu.Unlock()
		if stall == nil {
			return
		}
		<-stall
	}
}
