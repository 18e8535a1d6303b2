package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
)

// maxBridges is how many requests of one connection may be open at once that are for the
// other handler: each keeps a header, and most a goroutine.
const maxBridges = 128

// maxBody is how much the body of such a request may be in all: that of a health check or of
// a reflection is some bytes, and grpc-go reads all of it, whether or not its answers get out.
const maxBody = 1 << 20

// bridge is a request that the other handler answers, in a goroutine of its own: its body,
// its http.ResponseWriter and its http.Flusher. The connection's lock guards its fields,
// but for header, which is the handler's.
type bridge struct {
	conn    *conn
	stream  *stream
	request *http.Request // until it is handed over
	body    []byte        // received and not read
	closed  bool          // and never will be

	header   http.Header
	trailers []string // announced before the header was written
	wrote    bool
}

var errGone = errors.New("the stream is closed")

// openBridgeLocked opens a request for the other handler. One that is gRPC is handed over
// now, since it may be a stream; of any other there is no more to say than that it is not,
// and that is said when all of it has come, and without its body.
func (c *conn) openBridgeLocked(s *stream) {
	h := &c.head
	target, err := url.ParseRequestURI(h.path)
	if err != nil {
		c.abortLocked(s.id, http2.ErrCodeProtocol)
		return
	}
	if c.bridges >= maxBridges {
		c.abortLocked(s.id, http2.ErrCodeRefusedStream)
		return
	}
	c.bridges++
	c.guard.earn()
	fields := h.fields
	if fields == nil {
		fields = make(http.Header)
	}
	if h.contentType != "" {
		fields.Set("content-type", h.contentType)
	}
	s.bridge = &bridge{conn: c, stream: s, header: make(http.Header)}
	s.bridge.request = &http.Request{
		Method: h.method, URL: target, RequestURI: h.path, Host: h.authority,
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: fields, Body: s.bridge, ContentLength: h.contentLength,
		RemoteAddr: remoteAddr(c.raw), TLS: c.tls,
	}
	if isGRPC(h.contentType) {
		s.bridge.startLocked()
	}
}

// startLocked hands the request over.
func (b *bridge) startLocked() {
	c, s := b.conn, b.stream
	ctx, cancel := context.WithCancel(context.WithValue(c.ctx, http.LocalAddrContextKey, c.raw.LocalAddr()))
	s.waiting, s.cancel = true, cancel
	r := b.request.WithContext(ctx)
	b.request = nil
	c.srv.all.Go(func() {
		defer cancel()
		b.run(r)
	})
}

// remoteAddr is empty where the peer has no address, as with most unix sockets.
func remoteAddr(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// run has the handler answer, and ends the answer.
func (b *bridge) run(r *http.Request) {
	c, s := b.conn, b.stream
	defer func() {
		p := recover()
		if p != nil {
			c.srv.log.Error("panic in a request", slog.String("path", r.URL.Path),
				slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
		}
		c.mu.Lock()
		c.bridges--
		c.doneLocked(s)
		if c.streams[s.id] == s {
			b.finishLocked(p != nil)
		}
		c.emptyLocked()
		c.mu.Unlock()
		_ = c.out.flush()
	}()
	c.srv.opts.Other.ServeHTTP(b, r)
}

func (b *bridge) finishLocked(panicked bool) {
	c, s := b.conn, b.stream
	if panicked {
		c.abortLocked(s.id, http2.ErrCodeInternal)
		return
	}
	b.headLocked(http.StatusOK)
	start := len(c.out.buf)
	c.out.buf = openHeaders(c.out.buf, s.id, true)
	for name, values := range b.header {
		bare, late := strings.CutPrefix(name, http.TrailerPrefix)
		if late || slices.Contains(b.trailers, name) {
			c.out.buf = appendFields(c.out.buf, bare, values)
		}
	}
	if len(c.out.buf) > start+frameHeaderLen {
		c.out.buf = closeFrame(c.out.buf, start)
	} else {
		c.out.buf = appendFrame(c.out.buf[:start], 0, http2.FrameData, http2.FlagDataEndStream, s.id)
	}
	if !s.ended {
		c.resetLocked(s.id, http2.ErrCodeNo)
	}
	c.closeLocked(s)
}

func appendFields(dst []byte, name string, values []string) []byte {
	for _, v := range values {
		dst = appendField(dst, strings.ToLower(name), v)
	}
	return dst
}

// Header is part of http.ResponseWriter.
func (b *bridge) Header() http.Header { return b.header }

// WriteHeader is part of http.ResponseWriter.
func (b *bridge) WriteHeader(status int) {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	b.headLocked(status)
}

// headLocked writes the HEADERS, once.
func (b *bridge) headLocked(status int) {
	c := b.conn
	if b.wrote || c.streams[b.stream.id] != b.stream {
		return
	}
	b.wrote = true
	start := len(c.out.buf)
	c.out.buf = c.tableLocked(openHeaders(c.out.buf, b.stream.id, false))
	c.out.buf = appendField(c.out.buf, ":status", strconv.Itoa(status))
	for name, values := range b.header {
		switch {
		case name == "Trailer":
			for _, v := range values {
				b.trailers = append(b.trailers, http.CanonicalHeaderKey(v))
			}
		case strings.HasPrefix(name, http.TrailerPrefix), name == "Connection", name == "Transfer-Encoding":
		default:
			c.out.buf = appendFields(c.out.buf, name, values)
		}
	}
	c.out.buf = closeFrame(c.out.buf, start)
}

// Write is part of http.ResponseWriter. It waits where the peer does not read.
func (b *bridge) Write(p []byte) (int, error) {
	c, s := b.conn, b.stream
	c.mu.Lock()
	defer c.mu.Unlock()
	b.headLocked(http.StatusOK)
	for rest := p; len(rest) > 0; {
		if c.streams[s.id] != s || c.out.err != nil {
			return len(p) - len(rest), errGone
		}
		if len(c.out.buf) <= maxOutbound {
			if n := c.dataLocked(s, rest); n > 0 {
				rest = rest[n:]
				continue
			}
		}
		b.waitLocked()
	}
	return len(p), nil
}

// waitLocked flushes and waits until something has moved.
func (b *bridge) waitLocked() {
	c := b.conn
	if len(c.out.buf) > 0 && !c.out.writing {
		c.mu.Unlock()
		_ = c.out.flush()
		c.mu.Lock()
		return
	}
	if len(c.stalled)+c.writers == 0 {
		c.moved = c.srv.now.Load()
	}
	c.writers++
	c.out.sent.Wait()
	c.writers--
}

// Flush is part of http.Flusher.
func (b *bridge) Flush() {
	b.WriteHeader(http.StatusOK)
	_ = b.conn.out.flush()
}

// bodyLocked takes a part of a request's body.
func (c *conn) bodyLocked(s *stream, p []byte) {
	if s.bridge.request != nil {
		c.creditLocked(s, int64(len(p)))
		return
	}
	if s.received > maxBody || !c.srv.reserve(len(p)) {
		c.abortLocked(s.id, http2.ErrCodeEnhanceYourCalm)
		return
	}
	s.reserved += len(p)
	s.bridge.body = append(s.bridge.body, p...)
	c.out.sent.Broadcast()
}

// Read is part of io.ReadCloser: the body. What is read the peer may send again.
func (b *bridge) Read(p []byte) (int, error) {
	c, s := b.conn, b.stream
	c.mu.Lock()
	for len(b.body) == 0 && !s.ended && !b.closed && c.streams[s.id] == s {
		c.out.sent.Wait()
	}
	live := c.streams[s.id] == s
	n := copy(p, b.body)
	b.body = b.body[n:]
	if live {
		c.creditLocked(s, int64(n)) // what is reserved stays so: the handler keeps it
	}
	closed := b.closed
	c.mu.Unlock()
	switch {
	case n > 0:
		_ = c.out.flush()
		return n, nil
	case live && !closed:
		return 0, io.EOF
	}
	return 0, errGone
}

// Close is part of io.ReadCloser. A Read that waits ends.
func (b *bridge) Close() error {
	c := b.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	b.closed = true
	c.out.sent.Broadcast()
	return nil
}
