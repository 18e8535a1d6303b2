package wire

import (
	"errors"
	"math"
	"time"

	"golang.org/x/net/http2"
)

// phase is how far a connection is on its way out (RFC 9113 section 6.8): peers are first
// told that an end is coming, and then, when that must have reached them, which streams are
// still answered.
type phase uint8

const (
	staying phase = iota
	warned
	gone
)

// drainPing is the PING after the first GOAWAY: what comes before its acknowledgement may
// have been sent before the peer knew.
var drainPing = [8]byte{'g', 'o', 'i', 'n', 'g', 'o', 'f', 'f'}

// leaving reports whether streams that open now are ignored.
func (c *conn) leaving() bool { return c.phase == gone }

// goAway begins the end of the connection.
func (c *conn) goAway() {
	c.mu.Lock()
	if c.phase == staying {
		c.phase, c.drained = warned, c.srv.now.Load()
		c.out.buf = appendGoAway(c.out.buf, math.MaxInt32, http2.ErrCodeNo, "")
		c.out.buf = appendPing(c.out.buf, 0, drainPing)
	}
	c.mu.Unlock()
	c.srv.all.Go(func() { _ = c.out.flush() })
}

// pingLocked answers a PING (RFC 9113 section 6.7).
func (c *conn) pingLocked(f *http2.PingFrame) {
	switch {
	case !f.IsAck():
		c.out.buf = appendPing(c.out.buf, http2.FlagPingAck, f.Data)
	case c.phase == warned && f.Data == drainPing:
		c.leaveLocked()
	}
}

// leaveLocked takes no more streams.
func (c *conn) leaveLocked() {
	c.phase = gone
	c.out.buf = appendGoAway(c.out.buf, c.last, http2.ErrCodeNo, "")
	c.emptyLocked()
}

// emptyLocked ends the reading of a connection that has nothing to do any more.
func (c *conn) emptyLocked() {
	if c.leaving() && c.openLocked() == 0 {
		_ = c.raw.SetReadDeadline(time.Unix(1, 0)) // the past: whoever reads wakes up
	}
}

var (
	errSilent  = errors.New("the peer does not finish its greeting")
	errStalled = errors.New("the peer does not take its answers")
	errGrace   = errors.New("the grace is over")
)

// tend ends what has lasted too long.
func (c *conn) tend(now uint32) {
	if !c.settled.Load() && now-c.born > handshakeTicks {
		c.cut(errSilent)
		return
	}
	if since := c.out.since.Load(); since != 0 && now-since > stallTicks {
		c.cut(errStalled)
		return
	}
	c.mu.Lock()
	stalled := len(c.stalled)+c.writers > 0 && now-c.moved > stallTicks
	due := c.phase == staying && c.age != 0 && int32(now-c.age) >= 0
	late := c.phase == warned && now-c.drained > drainTicks
	if late {
		c.leaveLocked()
	}
	grace := uint32(min(c.srv.opts.MaxConnectionAgeGrace/tick, math.MaxInt32))
	c.lateLocked(now)
	unsent := c.unsentLocked()
	over := c.phase != staying && grace > 0 && now-c.drained > grace
	c.mu.Unlock()
	switch {
	case stalled:
		c.cut(errStalled)
	case over:
		c.cut(errGrace)
	case due:
		c.goAway()
	case late, unsent:
		c.srv.all.Go(func() { _ = c.out.flush() })
	}
}

// lateLocked ends the calls whose deadline is over, though whoever they wait for should have
// known it, and those of which no more comes.
func (c *conn) lateLocked(tick uint32) {
	now := time.Now()
	for _, s := range c.streams {
		switch {
		case s.waiting && !s.deadline.IsZero() && s.deadline.Before(now):
			c.failLocked(s, &Error{codeDeadlineExceeded, "no answer within the deadline"})
		case s.unary && s.reserved > 0 && !s.ended && tick-s.parted > stallTicks:
			c.failLocked(s, &Error{codeDeadlineExceeded, "the rest of the request does not come"})
		}
	}
}
