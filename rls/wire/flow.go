package wire

import (
	"golang.org/x/net/http2"
)

// Flow control (RFC 9113 section 5.2 and 6.9).

// settingsLocked takes the peer's settings (RFC 9113 section 6.5).
func (c *conn) settingsLocked(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	window := c.peerWindow
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingInitialWindowSize:
			window = int64(s.Val)
		case http2.SettingHeaderTableSize:
			c.shrunk = c.shrunk || s.Val < tableSize
		default: // larger frames than any peer takes would only make others wait
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.out.buf = appendFrame(c.out.buf, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
	delta := window - c.peerWindow
	if delta == 0 {
		return nil
	}
	c.peerWindow = window
	for _, s := range c.streams {
		if s.out += delta; s.out > largestWindow {
			return connError{http2.ErrCodeFlowControl, "a window of more than 2^31-1"}
		}
	}
	c.pumpAllLocked()
	return nil
}

// windowUpdateLocked lets more out (RFC 9113 section 6.9).
func (c *conn) windowUpdateLocked(f *http2.WindowUpdateFrame) error {
	n := int64(f.Increment)
	if f.StreamID == 0 {
		if c.window += n; c.window > largestWindow {
			return connError{http2.ErrCodeFlowControl, "a window of more than 2^31-1"}
		}
		c.pumpAllLocked()
		return nil
	}
	if f.StreamID > c.last {
		return connError{http2.ErrCodeProtocol, "WINDOW_UPDATE on an idle stream"}
	}
	s := c.streams[f.StreamID]
	if s == nil {
		return nil
	}
	if s.out += n; s.out > largestWindow {
		c.abortLocked(s.id, http2.ErrCodeFlowControl)
		return nil
	}
	if s.rest != nil {
		c.pumpLocked(s)
	}
	c.out.sent.Broadcast()
	return nil
}

// receivedLocked counts a frame of DATA, padding included, against the connection's window,
// which is opened again at once: what is kept of requests has a bound of its own.
func (c *conn) receivedLocked(n int64) error {
	if c.credit += n; c.credit > connWindow {
		return connError{http2.ErrCodeFlowControl, "more DATA than the window of the connection lets in"}
	}
	if c.credit >= connWindow/2 {
		c.out.buf = appendWindowUpdate(c.out.buf, 0, uint32(c.credit))
		c.credit = 0
	}
	return nil
}

// creditLocked lets the peer send n bytes more on a stream.
func (c *conn) creditLocked(s *stream, n int64) {
	if s.credit += n; s.credit >= streamWindow/2 && !s.ended {
		c.out.buf = appendWindowUpdate(c.out.buf, s.id, uint32(s.credit))
		s.window += s.credit
		s.credit = 0
	}
}

// stallLocked keeps the rest of an answer until windows let it out.
func (c *conn) stallLocked(s *stream, rest []byte) {
	if len(c.stalled)+c.writers == 0 {
		c.moved = c.srv.now.Load()
	}
	s.rest = rest
	c.stalled = append(c.stalled, s)
	c.pumpLocked(s)
}

func (c *conn) unstallLocked(s *stream) {
	for i, other := range c.stalled {
		if other == s {
			c.stalled = append(c.stalled[:i], c.stalled[i+1:]...)
			return
		}
	}
}

// pumpAllLocked writes what the windows let out of all answers.
func (c *conn) pumpAllLocked() {
	for i := 0; i < len(c.stalled) && c.window > 0; {
		s := c.stalled[i]
		c.pumpLocked(s)
		if s.rest != nil { // else it is not in the list any more
			i++
		}
	}
	c.out.sent.Broadcast()
}

// pumpLocked writes what the windows let out of one answer, and its trailers after the
// last of it.
func (c *conn) pumpLocked(s *stream) {
	for len(s.rest) > 0 {
		n := c.dataLocked(s, s.rest)
		if n == 0 {
			return
		}
		s.rest = s.rest[n:]
	}
	c.trailerLocked(s)
}

// dataLocked writes as much of p in one frame as windows and the peer's largest frame let
// out, and answers how much that was.
func (c *conn) dataLocked(s *stream, p []byte) int {
	n := int(max(min(int64(len(p)), int64(maxFrame), s.out, c.window), 0))
	if n == 0 {
		return 0
	}
	c.out.buf = appendFrame(c.out.buf, n, http2.FrameData, 0, s.id)
	c.out.buf = append(c.out.buf, p[:n]...)
	s.out -= int64(n)
	c.window -= int64(n)
	c.moved = c.srv.now.Load()
	return n
}
