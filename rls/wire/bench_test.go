package wire_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluice-rls/sluice/rls/wire"
)

// tape is a connection that plays batches of calls, and tells when they were answered.
type tape struct {
	batches chan []byte
	rest    []byte
	answers chan int // the bytes of each write
	once    sync.Once
	closed  chan struct{}
}

func (c *tape) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case c.rest = <-c.batches:
		case <-c.closed:
			return 0, io.EOF
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *tape) Write(p []byte) (int, error) {
	select {
	case c.answers <- len(p):
	case <-c.closed:
	}
	return len(p), nil
}

func (c *tape) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}
func (*tape) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*tape) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*tape) SetDeadline(time.Time) error      { return nil }
func (*tape) SetReadDeadline(time.Time) error  { return nil }
func (*tape) SetWriteDeadline(time.Time) error { return nil }

// one is a listener of one connection.
type one struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *one) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *one) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}
func (*one) Addr() net.Addr { return &net.TCPAddr{} }

// player plays calls to a server.
type player struct {
	tape   *tape
	batch  []byte
	heads  []int // where the heads of frames with a stream's number are
	stream uint32
}

const perBatch = 32

func newPlayer(tb testing.TB) *player {
	tb.Helper()
	t := &tape{batches: make(chan []byte), answers: make(chan int), closed: make(chan struct{})}
	srv := wire.New(wire.Options{Method: method, Handler: &echo{}, Other: http.NotFoundHandler()})
	ln := &one{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	ln.conns <- t
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	tb.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	p := &peer{tb: tb}
	p.framer = http2.NewFramer(&p.out, nil)
	p.encoder = newEncoder(&p.block)
	// What Envoy sends, in a block of indexes: the first call has filled the table.
	fields := []string{"grpc-timeout", "20m", "x-envoy-internal", "true", "x-forwarded-for", "127.0.0.1", "x-envoy-expected-rq-timeout-ms", "20"}
	p.out.WriteString(http2.ClientPreface)
	p.must(p.framer.WriteSettings())
	p.open(1, fields...)
	p.must(p.framer.WriteData(1, true, framed("hello")))
	first := append([]byte(nil), p.out.Bytes()...)
	p.out.Reset()
	pl := &player{tape: t, stream: 3}
	for range perBatch {
		pl.heads = append(pl.heads, p.out.Len())
		p.open(3, fields...)
		pl.heads = append(pl.heads, p.out.Len())
		p.must(p.framer.WriteData(3, true, framed("hello")))
	}
	p.must(p.framer.WriteWindowUpdate(0, perBatch*10))
	pl.batch = p.out.Bytes()
	<-t.answers // SETTINGS, written before the first read
	t.batches <- first
	<-t.answers
	return pl
}

// play sends a batch of calls and waits for the answers.
func (pl *player) play() int {
	for i, at := range pl.heads {
		binary.BigEndian.PutUint32(pl.batch[at+5:], pl.stream+uint32(i/2*2))
	}
	pl.stream += 2 * perBatch
	pl.tape.batches <- pl.batch
	return <-pl.tape.answers
}

func TestACallAllocatesNothing(t *testing.T) {
	p := newPlayer(t)
	for range 10 {
		p.play()
	}
	if n := testing.AllocsPerRun(100, func() { p.play() }) / perBatch; n > 0.1 {
		t.Errorf("%v allocations a call, want 0", n)
	}
}

// BenchmarkCall is what a call costs apart from the system's calls, of which 32 share two.
func BenchmarkCall(b *testing.B) {
	p := newPlayer(b)
	b.ReportAllocs()
	for b.Loop() {
		if n := p.play(); n < perBatch*50 {
			b.Fatalf("%d bytes answered %d calls", n, perBatch)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perBatch, "ns/call")
}
