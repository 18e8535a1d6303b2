package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// What the server tells each peer of itself, and what peers start with (RFC 9113 sections
// 6.5.2 and 6.9.2).
const (
	maxFrame      = 16 << 10 // the least that a peer may be told, and the default
	streamWindow  = 1 << 20
	connWindow    = 1 << 20
	initialWindow = 1<<16 - 1
	largestWindow = 1<<31 - 1
	tableSize     = 4096
)

// conn is one connection. Its goroutine reads, and answers what it can in place; what had to
// wait is answered by whoever ends the wait. The lock is held for a moment at a time, and never
// while something is written, or while a handler runs.
type conn struct {
	srv    *Server
	raw    net.Conn // what was accepted
	nc     net.Conn // the same, or TLS over it
	tls    *tls.ConnectionState
	ctx    context.Context //nolint:containedctx // ends with the connection, for TLS and the other handler
	cancel context.CancelFunc
	born   uint32 // ticks
	age    uint32 // the tick from which it has to go; 0 is never

	// Of the goroutine that reads.
	in      inbound
	framer  *http2.Framer
	decoder *hpack.Decoder
	head    header
	ready   *stream // a call that is complete, to be answered after the frame in hand
	framed  []byte  // its message
	scratch []byte  // for replies
	guard   guard

	settled atomic.Bool // the peer's first SETTINGS have come

	mu  sync.Mutex // guards what follows
	out outbound

	streams map[uint32]*stream
	free    []*stream
	last    uint32 // the highest stream that the peer has opened
	zombies int    // closed streams that are still worked on
	bridges int    // requests for Options.Other
	partial int    // bytes of messages that have come in part

	// window is what may be sent to the peer, credit what it has sent and may be told to
	// send again.
	window, credit int64
	peerWindow     int64 // that a new stream begins with
	shrunk         bool  // the next header block has to say that the table is not used

	stalled []*stream // whose answers wait for windows, in order
	writers int       // handlers that do
	moved   uint32    // the tick at which a window last let something out

	phase   phase
	drained uint32 // the tick of the first GOAWAY

	flushing sync.WaitGroup // the goroutines that Flush has started; added to under mu
}

// connError is a mistake of the peer's that ends the connection (RFC 9113 section 5.4.1).
type connError struct {
	code   http2.ErrCode
	reason string
}

func (e connError) Error() string { return e.code.String() + ": " + e.reason }

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		srv: s, raw: nc, nc: nc, born: s.now.Load(), age: s.age(),
		streams: make(map[uint32]*stream),
		window:  initialWindow, peerWindow: initialWindow,
		guard: newGuard(s.now.Load()),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	// Nobody writes before the handshake; the SETTINGS go before all else.
	c.out = outbound{mu: &c.mu, sent: sync.NewCond(&c.mu), conn: nc, now: &s.now, writing: true}
	c.out.buf = appendSettings(nil,
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: s.opts.MaxStreams},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderList})
	c.out.buf = appendWindowUpdate(c.out.buf, 0, connWindow-initialWindow)
	c.in = inbound{idle: c.out.drain}
	c.framer = http2.NewFramer(nil, &c.in)
	c.framer.SetMaxReadFrameSize(maxFrame)
	c.framer.SetReuseFrames()
	c.decoder = hpack.NewDecoder(tableSize, c.field)
	return c
}

// serve is the life of the connection.
func (c *conn) serve() {
	defer c.close()
	err := c.handshake()
	if err == nil {
		err = c.read()
	} else {
		c.srv.log.Debug("no connection came of it", slog.String("peer", remoteAddr(c.raw)), slog.Any("why", err))
	}
	c.end(err)
}

// handshake brings the connection to where frames are exchanged (RFC 9113 section 3.4).
func (c *conn) handshake() error {
	if c.srv.opts.TLS != nil {
		secure := tls.Server(c.raw, c.srv.opts.TLS)
		if err := secure.HandshakeContext(c.ctx); err != nil {
			return err
		}
		state := secure.ConnectionState()
		if state.NegotiatedProtocol != http2.NextProtoTLS {
			return errors.New("the peer does not offer h2 by ALPN")
		}
		c.nc, c.tls = secure, &state
	}
	c.in.src = c.nc
	c.mu.Lock()
	c.out.conn, c.out.writing = c.nc, false
	c.mu.Unlock()
	preface, err := c.in.take(len(http2.ClientPreface))
	if err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return connError{http2.ErrCodeProtocol, "no HTTP/2 preface"}
	}
	fh, err := c.framer.ReadFrameHeader()
	if err != nil {
		return err
	}
	if fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck) {
		return connError{http2.ErrCodeProtocol, "the preface ends without SETTINGS"}
	}
	err = c.otherFrame(fh)
	c.settled.Store(true)
	return err
}

// read takes frames until there are no more.
func (c *conn) read() error {
	for frames := 0; ; {
		fh, err := c.framer.ReadFrameHeader()
		if err != nil {
			return err
		}
		if err := c.frame(fh); err != nil {
			return err
		}
		if s := c.ready; s != nil {
			c.ready = nil
			c.call(s, c.framed)
			c.framed = nil
		}
		if frames++; frames%flushFrames == 0 {
			if err := c.out.drainFull(); err != nil {
				return err
			}
		}
	}
}

// flushFrames is how many frames may be answered before it is looked whether the answers
// have become too many for one write.
const flushFrames = 32

// frame acts on a frame whose head has been read. The three frames that calls are made of
// are read in place, without an object of the framer's.
func (c *conn) frame(fh http2.FrameHeader) error {
	if fh.Type != http2.FrameHeaders && fh.Type != http2.FrameContinuation && fh.Type != http2.FrameData {
		return c.otherFrame(fh)
	}
	p, err := c.in.take(int(fh.Length))
	if err != nil {
		return err
	}
	switch fh.Type {
	case http2.FrameHeaders:
		return c.headersFrame(fh, p)
	case http2.FrameContinuation:
		return c.continuationFrame(fh, p)
	default:
		return c.dataFrame(fh, p)
	}
}

func (c *conn) continuationFrame(fh http2.FrameHeader, p []byte) error {
	if err := c.guard.spend(1, c.srv.now.Load()); err != nil {
		return err
	}
	return c.fragment(p, fh.Flags.Has(http2.FlagContinuationEndHeaders))
}

// otherFrame acts on the frames that steer the connection, each of which costs the peer.
func (c *conn) otherFrame(fh http2.FrameHeader) error {
	if err := c.guard.spend(1, c.srv.now.Load()); err != nil {
		return err
	}
	f, err := c.framer.ReadFrameForHeader(fh)
	if e, ok := errors.AsType[http2.StreamError](err); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.abortLocked(e.StreamID, e.Code)
		return nil
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f := f.(type) {
	case *http2.SettingsFrame:
		return c.settingsLocked(f)
	case *http2.WindowUpdateFrame:
		return c.windowUpdateLocked(f)
	case *http2.RSTStreamFrame:
		return c.resetFrameLocked(f)
	case *http2.PingFrame:
		c.pingLocked(f)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			c.abortLocked(f.StreamID, http2.ErrCodeProtocol)
		}
	case *http2.PushPromiseFrame:
		return connError{http2.ErrCodeProtocol, "PUSH_PROMISE from a client"}
	}
	return nil // GOAWAY: the peer ends the connection itself. Others: RFC 9113 section 4.1
}

// resetFrameLocked forgets a stream (RFC 9113 section 6.4). To open streams only to reset
// them is worth nothing to a peer, and costs it.
func (c *conn) resetFrameLocked(f *http2.RSTStreamFrame) error {
	if f.StreamID > c.last {
		return connError{http2.ErrCodeProtocol, "RST_STREAM on an idle stream"}
	}
	s := c.streams[f.StreamID]
	if s == nil {
		return nil // its answer is on its way, or has come
	}
	c.closeLocked(s)
	return c.guard.spend(perRequest, c.srv.now.Load())
}

// resetLocked tells the peer that a stream is over.
func (c *conn) resetLocked(stream uint32, code http2.ErrCode) {
	c.out.buf = appendReset(c.out.buf, stream, code)
}

// abortLocked ends a stream for a mistake of the peer's (RFC 9113 section 5.4.2).
func (c *conn) abortLocked(stream uint32, code http2.ErrCode) {
	if s := c.streams[stream]; s != nil {
		c.closeLocked(s)
	}
	c.resetLocked(stream, code)
}

// end says why the connection ends, where that is not the peer's doing, and gives the peer
// a moment to read it: to close a socket with unread input may destroy what was sent.
func (c *conn) end(err error) {
	if errors.Is(err, http2.ErrFrameTooLarge) {
		err = connError{http2.ErrCodeFrameSize, "frame too large"}
	}
	if e, ok := errors.AsType[http2.ConnectionError](err); ok {
		err = connError{http2.ErrCode(e), "broken frame"}
		if detail := c.framer.ErrorDetail(); detail != nil {
			err = connError{http2.ErrCode(e), detail.Error()}
		}
	}
	e, broken := errors.AsType[connError](err)
	c.mu.Lock()
	if broken {
		c.out.buf = appendGoAway(c.out.buf, c.last, e.code, e.reason)
	}
	finished := c.leaving() && c.openLocked() == 0
	c.mu.Unlock()
	if !broken && !finished {
		return
	}
	c.srv.log.Debug("ending a connection", slog.String("peer", remoteAddr(c.raw)), slog.Any("why", err))
	if c.out.finish() == nil {
		c.linger()
	}
}

// linger closes the writing side and reads on until the peer has closed its own, for a
// bounded time and amount.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.raw.SetReadDeadline(time.Now().Add(time.Second)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c.raw, 1<<20)
}

// cut ends the connection at once.
func (c *conn) cut(err error) {
	c.mu.Lock()
	c.out.failLocked(err)
	c.mu.Unlock()
	_ = c.raw.Close()
}

// close forgets all that is left of the connection.
func (c *conn) close() {
	c.cut(net.ErrClosed)
	c.mu.Lock()
	for _, s := range c.streams {
		c.closeLocked(s)
	}
	c.mu.Unlock()
	c.cancel()
	c.flushing.Wait()
}
