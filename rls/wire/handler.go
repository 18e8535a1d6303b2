package wire

import "time"

// Handler answers the one method that the engine serves itself. It is safe for concurrent
// use.
type Handler interface {
	// Begin answers a message, appending the reply to dst, without waiting for anything. If
	// it would have to wait, it answers nothing and hands over the rest. It keeps neither
	// msg nor dst.
	Begin(msg, dst []byte) (reply []byte, rest Pending, err error)
}

// Pending is the rest of a call that has to wait.
type Pending interface {
	// Finish goes on with the call and does not wait for it: the answer goes to to, once,
	// sooner or later and maybe before Finish returns. The caller does not want it after the
	// deadline; the zero time is none. It is called once.
	Finish(deadline time.Time, to Answerer)
}

// Answerer takes the answer of a call that had to wait.
type Answerer interface {
	// Answer takes a reply, or an error in its place, and does not wait until it is written.
	// It keeps nothing of reply. What it returns, if it is not nil, is to be flushed once by
	// the caller when it has no more answers at the moment.
	Answer(reply []byte, err error) Flusher
}

// Flusher is a connection that has something to write. It is comparable.
type Flusher interface {
	// Flush sees to it that it is written, and does not wait for that.
	Flush()
}
