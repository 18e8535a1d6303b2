package wire

import (
	"context"
	"time"
)

// stream is one request and its answer. The connection's lock guards it, but for what is
// set before it is known to others.
type stream struct {
	conn *conn
	id   uint32
	// unary is a call of the one method; else bridge has the rest of it.
	unary  bool
	bridge *bridge

	deadline time.Time // by grpc-timeout; zero if there is none
	gzip     bool      // grpc-encoding

	ended    bool  // the peer has sent all of it
	declared int64 // content-length; -1 if absent
	received int64 // bytes of DATA, padding aside

	// window is what the peer may still send, credit what it has sent and may be told to
	// send again; out is what may be sent to the peer.
	window, credit, out int64

	message  []byte // what has come of the message, where it comes in parts
	reserved int    // bytes of the server's bound on those
	parted   uint32 // the tick at which the last part came

	// waiting is set while the answer is not known: the stream counts as open until it is,
	// whatever the peer does, so that resets do not buy the peer more work.
	waiting bool
	// parked is set once it has been waiting: whoever answered it may still have it.
	parked, told bool
	cancel       context.CancelFunc // of a request that was handed over

	rest []byte // what windows have kept of the answer's DATA; trailers follow
}

// newStreamLocked opens a stream. Those of calls that were answered at once are used
// again.
func (c *conn) newStreamLocked(id uint32) *stream {
	var s *stream
	if n := len(c.free) - 1; n >= 0 {
		s, c.free = c.free[n], c.free[:n]
		*s = stream{}
	} else {
		s = &stream{}
	}
	s.conn, s.id, s.window, s.out, s.declared = c, id, streamWindow, c.peerWindow, -1
	c.streams[id] = s
	return s
}

// closeLocked forgets a stream whose answer is written or that was reset. Whoever still
// works on it finds it gone.
func (c *conn) closeLocked(s *stream) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	c.unreserveLocked(s)
	if s.rest != nil {
		s.rest = nil
		c.unstallLocked(s)
	}
	switch {
	case s.waiting:
		c.zombies++
		if s.cancel != nil {
			s.cancel()
		}
	case s.bridge == nil && !s.parked && len(c.free) < maxFree:
		c.free = append(c.free, s)
	}
	if s.bridge != nil {
		if s.bridge.request != nil { // it was not handed over, so no goroutine ends
			c.bridges--
		}
		c.out.sent.Broadcast() // its handler may wait for the peer
	}
	c.emptyLocked()
}

// maxFree is how many streams are kept for new calls.
const maxFree = 64

// doneLocked says that the wait for a stream's answer is over.
func (c *conn) doneLocked(s *stream) {
	if c.streams[s.id] == s {
		s.waiting = false
		return
	}
	c.zombies--
	c.emptyLocked()
}

// openLocked is how many calls the peer has the server work on.
func (c *conn) openLocked() int { return len(c.streams) + c.zombies }
