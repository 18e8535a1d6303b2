package wire

import (
	"net"
	"sync"
	"sync/atomic"
)

// maxOutbound is how much may wait for a peer that does not read before nothing more is
// read from it, or written for it by a handler.
const maxOutbound = 64 << 10

// outbound collects what is to be written to a connection. Whoever has something adds it
// under the connection's lock and flushes without it: the first to do so writes, for all
// who come meanwhile as well.
type outbound struct {
	mu   *sync.Mutex // the connection's
	sent *sync.Cond  // on mu: some of buf was written, or never will be
	conn net.Conn
	now  *atomic.Uint32 // the server's ticks

	// The lock guards what follows.
	buf, spare []byte
	writing    bool
	err        error

	since atomic.Uint32 // the tick at which a write began that has not ended; 0 if none
}

// flush writes what there is, unless somebody is at it already.
func (o *outbound) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing {
		return o.err
	}
	o.writing = true
	for len(o.buf) > 0 && o.err == nil {
		b := o.buf
		o.buf, o.spare = o.spare[:0], nil
		o.since.Store(o.now.Load())
		o.mu.Unlock()
		_, err := o.conn.Write(b)
		o.mu.Lock()
		o.since.Store(0)
		if cap(b) <= 2*maxOutbound {
			o.spare = b[:0]
		}
		if err != nil {
			o.err = err
			_ = o.conn.Close() // ends the reading too
		}
		o.sent.Broadcast()
	}
	o.writing = false
	return o.err
}

// finish is flush for one who must not go on before all is written, whoever writes it.
func (o *outbound) finish() error {
	if err := o.flush(); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for (o.writing || len(o.buf) > 0) && o.err == nil {
		o.sent.Wait()
	}
	return o.err
}

// drain is flush for one who must not go on before there is room again.
func (o *outbound) drain() error {
	if err := o.flush(); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) > maxOutbound && o.err == nil {
		o.sent.Wait()
	}
	return o.err
}

// drainFull is drain if there is more than may wait.
func (o *outbound) drainFull() error {
	o.mu.Lock()
	full := len(o.buf) > maxOutbound
	o.mu.Unlock()
	if full {
		return o.drain()
	}
	return nil
}

// failLocked says that nothing will be written any more.
func (o *outbound) failLocked(err error) {
	if o.err == nil {
		o.err = err
	}
	o.sent.Broadcast()
}
