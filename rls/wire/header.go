package wire

import (
	"errors"
	"net/http"
	"strconv"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// maxHeaderList is the largest header of a request, counted as RFC 9113 section 6.5.2
	// does; maxBlock is the largest block that it may come in. The block of a larger list
	// is decoded, for the state of the decoder, and its request refused; a larger block
	// ends the connection.
	maxHeaderList = 32 << 10
	maxBlock      = 64 << 10
)

// header is the header, or the trailers, of one request as far as it has come.
type header struct {
	stream uint32
	ended  bool // END_STREAM came with it
	size   int  // of the block
	list   int  // of the list

	method, scheme, path, authority string

	contentType, encoding, timeout string
	contentLength                  int64

	plain bool  // a field without a colon has come
	other bool  // fields are kept, since it is no call of the one method
	bad   error // why it is malformed (RFC 9113 section 8.1.1)
	// fields has what is not above, and content-type.
	fields http.Header
}

// headersFrame begins a header (RFC 9113 section 6.2).
func (c *conn) headersFrame(fh http2.FrameHeader, p []byte) error {
	if fh.StreamID == 0 {
		return connError{http2.ErrCodeProtocol, "HEADERS on stream 0"}
	}
	p, err := unpad(p, fh.Flags.Has(http2.FlagHeadersPadded))
	if err != nil {
		return err
	}
	c.head = header{stream: fh.StreamID, ended: fh.Flags.Has(http2.FlagHeadersEndStream), contentLength: -1}
	if fh.Flags.Has(http2.FlagHeadersPriority) {
		if len(p) < 5 {
			return connError{http2.ErrCodeFrameSize, "HEADERS too short for its priority"}
		}
		if depends := uint32(p[0]&0x7f)<<24 | uint32(p[1])<<16 | uint32(p[2])<<8 | uint32(p[3]); depends == fh.StreamID {
			c.head.bad = errors.New("a stream depends on itself")
		}
		p = p[5:]
	}
	return c.fragment(p, fh.Flags.Has(http2.FlagHeadersEndHeaders))
}

// unpad takes the padding off a payload (RFC 9113 section 6.1).
func unpad(p []byte, padded bool) ([]byte, error) {
	if !padded {
		return p, nil
	}
	if len(p) == 0 {
		return nil, connError{http2.ErrCodeFrameSize, "padding without a length"}
	}
	n := int(p[0])
	if n >= len(p) {
		return nil, connError{http2.ErrCodeProtocol, "padding longer than its frame"}
	}
	return p[1 : len(p)-n], nil
}

// fragment decodes a part of a block; with the last the header is complete.
func (c *conn) fragment(p []byte, last bool) error {
	if c.head.size += len(p); c.head.size > maxBlock {
		return connError{http2.ErrCodeEnhanceYourCalm, "header block too large"}
	}
	if _, err := c.decoder.Write(p); err != nil {
		return connError{http2.ErrCodeCompression, "header block: " + err.Error()}
	}
	if !last {
		return nil
	}
	if err := c.decoder.Close(); err != nil {
		return connError{http2.ErrCodeCompression, "header block: " + err.Error()}
	}
	c.decoder.SetEmitEnabled(true)
	return c.headerDone()
}

// field takes the next field of the header.
func (c *conn) field(f hpack.HeaderField) {
	h := &c.head
	if h.list += len(f.Name) + len(f.Value) + 32; h.list > maxHeaderList {
		c.decoder.SetEmitEnabled(false)
		return
	}
	switch {
	case h.bad != nil:
	case f.IsPseudo():
		h.bad = h.pseudo(f)
	default:
		if !h.plain {
			h.plain = true
			h.other = h.method != http.MethodPost || h.path != c.srv.opts.Method
		}
		h.bad = h.regular(f)
	}
}

func (h *header) tooLarge() bool { return h.list > maxHeaderList }

// pseudo takes a pseudo-header field (RFC 9113 section 8.3).
func (h *header) pseudo(f hpack.HeaderField) error {
	if h.plain {
		return errors.New("pseudo-header field after others")
	}
	var dst *string
	switch f.Name {
	case ":method":
		dst = &h.method
	case ":scheme":
		dst = &h.scheme
	case ":path":
		dst = &h.path
	case ":authority":
		dst = &h.authority
	default:
		return errors.New("unknown pseudo-header field")
	}
	if *dst != "" {
		return errors.New("pseudo-header field that comes twice")
	}
	if !httpguts.ValidHeaderFieldValue(f.Value) {
		return errors.New("pseudo-header field with a value that is none")
	}
	*dst = f.Value
	return nil
}

// regular takes any other field (RFC 9113 section 8.2).
func (h *header) regular(f hpack.HeaderField) error {
	switch f.Name {
	case "content-type":
		h.contentType = f.Value
	case "grpc-timeout":
		h.timeout = f.Value
	case "grpc-encoding":
		h.encoding = f.Value
	case "te":
		if f.Value != "trailers" {
			return errors.New("te that is not trailers")
		}
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return errors.New("field of a connection")
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, 63)
		if err != nil || h.contentLength >= 0 && h.contentLength != int64(n) {
			return errors.New("content-length that is none")
		}
		h.contentLength = int64(n)
	default:
		if !validName(f.Name) {
			return errors.New("field with a name that is none")
		}
	}
	if !httpguts.ValidHeaderFieldValue(f.Value) {
		return errors.New("field with a value that is none")
	}
	if h.other {
		if h.fields == nil {
			h.fields = make(http.Header)
		}
		h.fields.Add(f.Name, f.Value)
	}
	return nil
}

// validName reports whether a name is a token in lower case (RFC 9113 section 8.2.1).
func validName(name string) bool {
	for i := range len(name) {
		b := name[i]
		if 'a' <= b && b <= 'z' || b == '-' || '0' <= b && b <= '9' {
			continue
		}
		if 'A' <= b && b <= 'Z' || !httpguts.IsTokenRune(rune(b)) {
			return false
		}
	}
	return name != ""
}

// complete reports whether the header is that of a request (RFC 9113 section 8.3.1).
func (h *header) complete() bool {
	return h.bad == nil && h.method != "" && h.scheme != "" && h.path != ""
}

// headerDone acts on a header that is complete.
func (c *conn) headerDone() error {
	h := &c.head
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[h.stream]; s != nil {
		return c.trailersLocked(s)
	}
	switch {
	case h.stream%2 == 0:
		return connError{http2.ErrCodeProtocol, "HEADERS on a stream of the server's"}
	case h.stream <= c.last:
		// RFC 9113 section 5.1.1: a new stream has a higher number than all before, so
		// this is one that was closed, or skipped, which closes it.
		return connError{http2.ErrCodeStreamClosed, "HEADERS on a stream that is closed"}
	case c.leaving():
		return nil // RFC 9113 section 6.8: what comes after our GOAWAY is ignored
	}
	c.last = h.stream
	switch {
	case h.tooLarge():
		c.refuseHeaderLocked()
	case !h.complete():
		c.resetLocked(h.stream, http2.ErrCodeProtocol)
	case c.openLocked() >= int(c.srv.opts.MaxStreams):
		c.resetLocked(h.stream, http2.ErrCodeRefusedStream)
	default:
		c.openStreamLocked()
	}
	return nil
}

// refuseHeaderLocked answers a header that is too large, as RFC 9113 section 10.5.1 has
// it.
func (c *conn) refuseHeaderLocked() {
	const text = "the header is too large"
	start := len(c.out.buf)
	c.out.buf = openHeaders(c.out.buf, c.head.stream, true)
	c.out.buf = appendField(c.tableLocked(c.out.buf), ":status", strconv.Itoa(http.StatusRequestHeaderFieldsTooLarge))
	c.out.buf = appendField(c.out.buf, "content-type", "application/grpc")
	c.out.buf = appendStatusFields(c.out.buf, &Error{codeResourceExhausted, text})
	c.out.buf = closeFrame(c.out.buf, start)
	if !c.head.ended {
		c.resetLocked(c.head.stream, http2.ErrCodeNo)
	}
}

// openStreamLocked opens the stream of a request.
func (c *conn) openStreamLocked() {
	h := &c.head
	s := c.newStreamLocked(h.stream)
	s.declared = h.contentLength
	s.unary = h.method == http.MethodPost && h.path == c.srv.opts.Method && isGRPC(h.contentType)
	if s.unary {
		c.openUnaryLocked(s)
	} else {
		c.openBridgeLocked(s)
	}
	if h.ended && c.streams[s.id] == s {
		c.endLocked(s)
	}
}

// trailersLocked ends a request with trailers, which say nothing to gRPC (RFC 9113
// section 8.1).
func (c *conn) trailersLocked(s *stream) error {
	h := &c.head
	switch {
	case s.ended:
		c.closeLocked(s)
		c.resetLocked(s.id, http2.ErrCodeStreamClosed)
	case !h.ended, h.bad != nil, h.method != "", h.scheme != "", h.path != "", h.authority != "":
		c.closeLocked(s)
		c.resetLocked(s.id, http2.ErrCodeProtocol)
	default:
		c.endLocked(s)
	}
	return nil
}
