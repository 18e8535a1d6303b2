package wire_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sluice-rls/sluice/rls/wire"
)

// toldListener tells of each connection that the server has closed.
type toldListener struct {
	*bufconn.Listener
	closed chan struct{}
}

// Accept is part of net.Listener.
func (l *toldListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &toldConn{Conn: c, closed: l.closed}, nil
}

type toldConn struct {
	net.Conn
	closed chan struct{}
}

// Close is part of net.Conn.
func (c *toldConn) Close() error {
	err := c.Conn.Close()
	select {
	case c.closed <- struct{}{}:
	default:
	}
	return err
}

// FuzzServeConn sends bytes after the greeting: whatever they are, the server closes its
// end when the peer has, and answers another connection meanwhile.
func FuzzServeConn(f *testing.F) {
	seed := func(write func(p *peer)) {
		p := &peer{tb: f}
		p.framer = http2.NewFramer(&p.out, nil)
		p.framer.AllowIllegalWrites = true
		p.encoder = newEncoder(&p.block)
		write(p)
		f.Add(true, p.out.Bytes())
	}
	seed(func(p *peer) { p.call(1, "hello"); p.call(3, "blow 70000"); p.call(5, "wait") })
	seed(func(p *peer) {
		p.open(1, "grpc-encoding", "gzip", "grpc-timeout", "20m")
		p.must(p.framer.WriteDataPadded(1, false, framed("hello")[:6], make([]byte, 9)))
		p.must(p.framer.WriteData(1, true, framed("hello")[6:]))
		p.must(p.framer.WriteRSTStream(1, http2.ErrCodeCancel))
	})
	seed(func(p *peer) {
		p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3}, http2.Setting{ID: http2.SettingHeaderTableSize}))
		p.call(1, "hello")
		p.must(p.framer.WriteWindowUpdate(1, 4))
		p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		p.must(p.framer.WriteWindowUpdate(0, 1<<20))
		p.must(p.framer.WritePing(false, [8]byte{1}))
		p.must(p.framer.WriteGoAway(1, http2.ErrCodeNo, nil))
	})
	seed(func(p *peer) {
		block := p.encode(":method", "POST", ":scheme", "http", ":path", "/other", "content-type", "application/grpc")
		p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:4], Priority: http2.PriorityParam{StreamDep: 3}}))
		p.must(p.framer.WriteContinuation(1, true, block[4:]))
		p.must(p.framer.WriteData(1, false, []byte("body")))
		p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode("x", "y"), EndHeaders: true, EndStream: true}))
		p.must(p.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: block, EndHeaders: true}))
	})
	f.Add(false, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r"))

	now := make(chan struct{}) // calls that wait are answered by another goroutine, at once
	close(now)
	srv := wire.New(wire.Options{
		Method: method, Handler: &echo{release: now},
		Other: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }),
	})
	ln := &toldListener{bufconn.Listen(1 << 20), make(chan struct{}, 1)}
	go func() { _ = srv.Serve(ln) }()
	f.Cleanup(srv.Stop)
	beside, stream := connect(f, ln.Listener), uint32(1)
	f.Fuzz(func(t *testing.T, greet bool, data []byte) {
		beside.tb = t
		p := dial(t, ln.Listener)
		if greet {
			p.out.WriteString(http2.ClientPreface)
			p.must(p.framer.WriteSettings())
		}
		p.out.Write(data)
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, p.conn)
		}()
		_ = p.flush()
		msg := string(data[:min(len(data), 1000)])
		if bytes.HasPrefix(data, []byte("wait")) || bytes.HasPrefix(data, []byte("fail")) || bytes.HasPrefix(data, []byte("blow")) {
			msg = ""
		}
		beside.call(stream, msg)
		beside.must(beside.framer.WriteWindowUpdate(0, uint32(len(framed(msg)))))
		if err := beside.flush(); err != nil {
			t.Fatal(err)
		}
		if r := beside.await(stream); r.data != string(framed(msg)) {
			t.Fatalf("the call beside = %+v", r)
		}
		stream += 2
		_ = p.conn.Close()
		<-ln.closed
		<-read
	})
}
