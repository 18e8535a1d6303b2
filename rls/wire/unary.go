package wire

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/net/http2"
)

// MaxMessage is the largest message of a request, in bytes, compressed or not.
const MaxMessage = 4 << 20

// prefixLen is that of a message's prefix: whether it is compressed, and its length.
const prefixLen = 5

// openUnaryLocked begins a call of the one method.
func (c *conn) openUnaryLocked(s *stream) {
	h := &c.head
	switch h.encoding {
	case "", "identity":
	case "gzip":
		s.gzip = true
	default:
		c.failLocked(s, &Error{codeUnimplemented, fmt.Sprintf("grpc-encoding %q: neither gzip nor identity", h.encoding)})
		return
	}
	if h.timeout != "" {
		d, ok := parseTimeout(h.timeout)
		switch {
		case !ok:
			c.failLocked(s, &Error{codeInternal, fmt.Sprintf("grpc-timeout %q: not digits and a unit", h.timeout)})
			return
		case d == 0:
			c.failLocked(s, &Error{codeDeadlineExceeded, "the deadline was over before the call"})
			return
		}
		s.deadline = time.Now().Add(d)
	}
	c.guard.earn()
}

// dataFrame takes a part of a request (RFC 9113 section 6.1).
func (c *conn) dataFrame(fh http2.FrameHeader, p []byte) error {
	if fh.StreamID == 0 {
		return connError{http2.ErrCodeProtocol, "DATA on stream 0"}
	}
	p, err := unpad(p, fh.Flags.Has(http2.FlagDataPadded))
	if err != nil {
		return err
	}
	end := fh.Flags.Has(http2.FlagDataEndStream)
	if len(p) == 0 && !end {
		if err := c.guard.spend(1, c.srv.now.Load()); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.receivedLocked(int64(fh.Length)); err != nil {
		return err
	}
	s := c.streams[fh.StreamID]
	if s == nil || s.ended {
		return c.lateDataLocked(fh.StreamID)
	}
	if code := s.admit(int64(fh.Length), int64(len(p)), end); code != http2.ErrCodeNo {
		c.abortLocked(s.id, code)
		return nil
	}
	c.creditLocked(s, int64(fh.Length)-int64(len(p))) // nobody reads the padding
	if !s.unary {
		c.bodyLocked(s, p)
	} else if !end || s.message != nil {
		c.creditLocked(s, int64(len(p)))
		p = c.collectLocked(s, p)
	}
	if end && c.streams[s.id] == s {
		c.endLocked(s)
		c.framed = p
	}
	return nil
}

// lateDataLocked refuses DATA on a stream that is not open.
func (c *conn) lateDataLocked(stream uint32) error {
	switch {
	case stream <= c.last:
		c.abortLocked(stream, http2.ErrCodeStreamClosed)
		return c.guard.spend(1, c.srv.now.Load())
	case c.leaving():
		return nil // it came after our GOAWAY
	}
	return connError{http2.ErrCodeProtocol, "DATA on an idle stream"}
}

// admit counts a frame of DATA, of a size with padding and of a part of the body, against
// the stream's window and what its header has declared (RFC 9113 section 8.1.1).
func (s *stream) admit(size, body int64, end bool) http2.ErrCode {
	if size > s.window {
		return http2.ErrCodeFlowControl
	}
	s.window -= size
	s.received += body
	if s.declared >= 0 && (s.received > s.declared || end && s.received < s.declared) {
		return http2.ErrCodeProtocol
	}
	return http2.ErrCodeNo
}

// collectLocked keeps a part of a message, and gives all of it that has come.
func (c *conn) collectLocked(s *stream, p []byte) []byte {
	if most := max(c.srv.opts.MaxBuffered/4, MaxMessage+prefixLen); int64(c.partial+len(p)) > most || !c.srv.reserve(len(p)) {
		c.failLocked(s, &Error{codeResourceExhausted, "too many requests in parts at once"})
		return nil
	}
	s.reserved += len(p)
	c.partial += len(p)
	s.parted = c.srv.now.Load()
	s.message = append(s.message, p...)
	if len(s.message) >= prefixLen {
		length := int64(binary.BigEndian.Uint32(s.message[1:]))
		switch {
		case length > MaxMessage:
			c.failLocked(s, errTooLarge(length))
		case int64(len(s.message)) > prefixLen+length:
			c.failLocked(s, errCardinality)
		}
	}
	return s.message
}

// unreserveLocked forgets what has come of a message.
func (c *conn) unreserveLocked(s *stream) {
	c.srv.unreserve(s.reserved)
	if s.unary {
		c.partial -= s.reserved
	}
	s.reserved, s.message = 0, nil
}

// endLocked notes that all of a request has come.
func (c *conn) endLocked(s *stream) {
	s.ended = true
	switch {
	case s.unary:
		c.ready, c.framed = s, s.message
	case s.bridge.request != nil:
		s.bridge.startLocked()
	default:
		c.out.sent.Broadcast()
	}
}

var (
	// errCardinality is the status of a unary call with no message or with two
	// (doc/statuscodes.md of gRPC).
	errCardinality = &Error{codeUnimplemented, "the call has not exactly one message"}
	errCutShort    = &Error{codeInternal, "the message is shorter than its prefix says"}
)

func errTooLarge(n int64) *Error {
	return &Error{codeResourceExhausted, fmt.Sprintf("message of %d bytes: more than %d", n, MaxMessage)}
}

// unframe takes the prefix off a message, and decompresses it.
func (c *conn) unframe(s *stream, framed []byte) ([]byte, error) {
	if len(framed) == 0 {
		return nil, errCardinality
	}
	if len(framed) < prefixLen {
		return nil, errCutShort
	}
	length := int64(binary.BigEndian.Uint32(framed[1:]))
	message := framed[prefixLen:]
	switch {
	case length > MaxMessage:
		return nil, errTooLarge(length)
	case int64(len(message)) < length:
		return nil, errCutShort
	case int64(len(message)) > length:
		return nil, errCardinality
	}
	switch framed[0] {
	case 0:
		return message, nil
	case 1:
		if !s.gzip {
			return nil, &Error{codeInternal, "compressed message without a grpc-encoding"}
		}
		return gunzip(message)
	}
	return nil, &Error{codeInternal, "message with an unknown flag"}
}

// call answers a request that has come whole, or begins to wait for its answer.
func (c *conn) call(s *stream, framed []byte) {
	message, err := c.unframe(s, framed)
	if err != nil {
		c.answer(s, nil, err)
		return
	}
	reply, rest, err := c.srv.opts.Handler.Begin(message, c.scratch[:0])
	if rest != nil {
		c.wait(s, rest)
		return
	}
	c.answer(s, reply, err)
	if cap(reply) <= maxOutbound {
		c.scratch = reply[:0]
	}
}

// wait begins to wait for the answer of a call.
func (c *conn) wait(s *stream, rest Pending) {
	c.mu.Lock()
	s.waiting, s.parked = true, true
	c.unreserveLocked(s)
	c.mu.Unlock()
	rest.Finish(s.deadline, s)
}

// answer writes the answer of a call that did not have to wait, if its stream is still
// there. The goroutine that reads flushes before it waits.
func (c *conn) answer(s *stream, reply []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answerLocked(s, reply, err)
}

func (c *conn) answerLocked(s *stream, reply []byte, err error) {
	switch {
	case c.streams[s.id] != s:
	case err != nil:
		c.failLocked(s, asError(err))
	default:
		c.replyLocked(s, reply)
	}
}

// Answer implements Answerer: the wait for a call is over. Only the first answer counts.
func (s *stream) Answer(reply []byte, err error) Flusher {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.told {
		return nil
	}
	s.told = true
	c.doneLocked(s)
	c.answerLocked(s, reply, err)
	if !c.unsentLocked() {
		return nil
	}
	return c
}

// unsentLocked reports whether there is something to write that nobody is about to.
func (c *conn) unsentLocked() bool {
	return len(c.out.buf) > 0 && !c.out.writing && c.out.err == nil
}

// Flush implements Flusher. The peer may be slow, so another goroutine writes.
func (c *conn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsentLocked() {
		c.flushing.Go(func() { _ = c.out.flush() })
	}
}

// replyLocked writes the answer of a call: HEADERS, DATA, trailers.
func (c *conn) replyLocked(s *stream, reply []byte) {
	n := prefixLen + len(reply)
	b := c.headLocked(s)
	if n > maxFrame || int64(n) > min(s.out, c.window) {
		c.out.buf = b
		rest := append(appendPrefix(make([]byte, 0, n), len(reply)), reply...)
		c.stallLocked(s, rest)
		return
	}
	b = appendPrefix(appendFrame(b, n, http2.FrameData, 0, s.id), len(reply))
	c.out.buf = append(b, reply...)
	c.window -= int64(n)
	c.trailerLocked(s)
}

func appendPrefix(dst []byte, length int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0), uint32(length))
}

// headLocked appends the HEADERS of an answer.
func (c *conn) headLocked(s *stream) []byte {
	start := len(c.out.buf)
	b := c.tableLocked(openHeaders(c.out.buf, s.id, false))
	return closeFrame(append(b, grpcHead...), start)
}

// trailerLocked ends an answer with the status OK.
func (c *conn) trailerLocked(s *stream) {
	start := len(c.out.buf)
	c.out.buf = closeFrame(append(openHeaders(c.out.buf, s.id, true), grpcOK...), start)
	c.closeLocked(s)
}

// failLocked answers a call with an error: trailers alone. If the peer is still sending
// it may stop (RFC 9113 section 8.1).
func (c *conn) failLocked(s *stream, e *Error) {
	start := len(c.out.buf)
	b := append(c.tableLocked(openHeaders(c.out.buf, s.id, true)), grpcHead...)
	if e.Code == codeUnimplemented {
		b = appendField(b, "grpc-accept-encoding", "identity,gzip")
	}
	c.out.buf = closeFrame(appendStatusFields(b, e), start)
	if !s.ended {
		c.resetLocked(s.id, http2.ErrCodeNo)
	}
	c.closeLocked(s)
}

// tableLocked begins a header block: the first after the peer has made the table of its
// decoder smaller says that the table is not used.
func (c *conn) tableLocked(block []byte) []byte {
	if c.shrunk {
		c.shrunk = false
		return append(block, noTable)
	}
	return block
}
