package wire_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sluice-rls/sluice/rls/wire"
)

const method = "/test.Service/Echo"

// echo answers each message with itself; one that begins with "wait" has to wait until its
// deadline, or until the handler's channel is closed, and "fail" fails.
type echo struct {
	release chan struct{}
	ended   <-chan struct{} // the test
}

// Begin is part of wire.Handler.
func (e *echo) Begin(msg, dst []byte) ([]byte, wire.Pending, error) {
	switch {
	case bytes.HasPrefix(msg, []byte("wait")):
		return nil, &echoRest{e, bytes.Clone(msg)}, nil
	case bytes.HasPrefix(msg, []byte("fail")):
		return nil, nil, &wire.Error{Code: 3, Message: "100% wrong: ü\n"}
	case bytes.HasPrefix(msg, []byte("blow ")): // an answer of that many bytes
		n, err := strconv.Atoi(string(msg[5:]))
		return append(dst, make([]byte, n)...), nil, err
	}
	return append(dst, msg...), nil, nil
}

type echoRest struct {
	*echo
	msg []byte
}

// Finish is part of wire.Pending.
func (e *echoRest) Finish(deadline time.Time, to wire.Answerer) {
	var late <-chan time.Time
	if !deadline.IsZero() {
		late = time.After(time.Until(deadline))
	}
	go func() {
		select {
		case <-late:
			give(to, nil, context.DeadlineExceeded)
		case <-e.release:
			give(to, e.msg, nil)
		case <-e.ended:
		}
	}()
}

// give gives an answer, and flushes it.
func give(to wire.Answerer, reply []byte, err error) {
	if f := to.Answer(reply, err); f != nil {
		f.Flush()
	}
}

// held is a handler whose calls wait until the test answers them.
type held chan wire.Answerer

// Begin is part of wire.Handler.
func (h held) Begin(_, _ []byte) ([]byte, wire.Pending, error) { return nil, h, nil }

// Finish is part of wire.Pending.
func (h held) Finish(_ time.Time, to wire.Answerer) { h <- to }

// start serves a handler in memory, until the test ends.
func start(tb testing.TB, o wire.Options) *bufconn.Listener {
	tb.Helper()
	o.Method = method
	if o.Handler == nil {
		o.Handler = &echo{}
	}
	if e, ok := o.Handler.(*echo); ok {
		e.ended = tb.Context().Done()
	}
	if o.Other == nil {
		o.Other = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such thing", http.StatusNotFound) })
	}
	srv := wire.New(o)
	ln := bufconn.Listen(64 << 10)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	tb.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			tb.Errorf("Serve = %v", err)
		}
	})
	return ln
}

// peer is a client that may do as it likes. Its frames are collected until flush.
type peer struct {
	tb      testing.TB
	conn    net.Conn
	out     bytes.Buffer
	framer  *http2.Framer // reads from conn, writes to out
	block   bytes.Buffer
	encoder *hpack.Encoder
	decoder *hpack.Decoder
	fields  map[string]string // of the header block that came last
}

// connect dials, and greets with settings.
func connect(tb testing.TB, ln *bufconn.Listener, settings ...http2.Setting) *peer {
	tb.Helper()
	p := dial(tb, ln)
	p.out.WriteString(http2.ClientPreface)
	p.must(p.framer.WriteSettings(settings...))
	return p
}

// dial connects and says nothing.
func dial(tb testing.TB, ln *bufconn.Listener) *peer {
	tb.Helper()
	conn, err := ln.Dial()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	p := &peer{tb: tb, conn: conn}
	p.framer = http2.NewFramer(&p.out, conn)
	p.framer.AllowIllegalWrites = true
	p.encoder = newEncoder(&p.block)
	p.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) { p.fields[f.Name] = f.Value })
	return p
}

func (p *peer) must(err error) {
	p.tb.Helper()
	if err != nil {
		p.tb.Fatal(err)
	}
}

// flush sends what was written. That the server has closed is no failure here.
func (p *peer) flush() error {
	_, err := p.conn.Write(p.out.Bytes())
	p.out.Reset()
	return err
}

// header encodes the header of a call, with more fields in turn.
func (p *peer) header(fields ...string) []byte {
	p.tb.Helper()
	return p.encode(append([]string{
		":method", "POST", ":scheme", "http", ":path", method, ":authority", "test",
		"content-type", "application/grpc", "te", "trailers",
	}, fields...)...)
}

func (p *peer) encode(fields ...string) []byte {
	p.tb.Helper()
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.must(p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(p.block.Bytes())
}

// open writes the HEADERS of a call.
func (p *peer) open(stream uint32, fields ...string) {
	p.tb.Helper()
	p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.header(fields...), EndHeaders: true}))
}

// call writes a call with a message.
func (p *peer) call(stream uint32, msg string) {
	p.tb.Helper()
	p.open(stream)
	p.must(p.framer.WriteData(stream, true, framed(msg)))
}

// framed puts the prefix before a message.
func framed(msg string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg)))
	return append(b, msg...)
}

// reply is what came of a call.
type reply struct {
	status, message string // grpc-status and grpc-message, or the HTTP status if not 200
	data            string
	reset           http2.ErrCode
	wasReset        bool
}

// await reads until a call is over.
func (p *peer) await(stream uint32) reply {
	p.tb.Helper()
	var r reply
	for {
		f, err := p.next()
		if err != nil {
			p.tb.Fatalf("stream %d: %v", stream, err)
		}
		if f.Header().StreamID != stream {
			continue
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			if s := p.fields[":status"]; s != "" && s != "200" {
				r.status = s
			}
			if s, ok := p.fields["grpc-status"]; ok && r.status == "" {
				r.status, r.message = s, p.fields["grpc-message"]
			}
			if f.StreamEnded() {
				return r
			}
		case *http2.DataFrame:
			r.data += string(f.Data())
			if f.StreamEnded() {
				return r
			}
		case *http2.RSTStreamFrame:
			r.reset, r.wasReset = f.ErrCode, true
			return r
		}
	}
}

// next reads a frame, and decodes it if it has fields.
func (p *peer) next() (http2.Frame, error) {
	f, err := p.framer.ReadFrame()
	if h, ok := f.(*http2.HeadersFrame); ok && err == nil {
		p.fields = make(map[string]string)
		if _, err := p.decoder.Write(h.HeaderBlockFragment()); err != nil {
			return nil, err
		}
		return f, p.decoder.Close()
	}
	return f, err
}

// goAway reads until the server ends the connection, and gives the last reason it told.
func (p *peer) goAway() (http2.ErrCode, bool) {
	var code http2.ErrCode
	told := false
	for {
		f, err := p.next()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				p.tb.Logf("reading: %v", err)
			}
			return code, told
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			code, told = g.ErrCode, true
		}
	}
}

// check makes a call on a connection of its own: whatever others do, it is answered.
func check(tb testing.TB, ln *bufconn.Listener) {
	tb.Helper()
	p := connect(tb, ln)
	defer func() { _ = p.conn.Close() }()
	p.call(1, "hello")
	p.must(p.flush())
	if r := p.await(1); r.status != "0" || r.data != string(framed("hello")) {
		tb.Errorf("a call beside = %+v", r)
	}
}

// patience is how long something may take that should take no time.
const patience = 20 * time.Second

func newEncoder(w io.Writer) *hpack.Encoder { return hpack.NewEncoder(w) }
