package wire

import "context"

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
	// Finish waits, at the longest until ctx is done, and appends the reply to dst. It is
	// called once.
	Finish(ctx context.Context, dst []byte) (reply []byte, err error)
}
