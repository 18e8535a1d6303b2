package wire

import "context"

// job is a call that has to wait, on its way to its answer.
type job struct {
	conn   *conn
	stream *stream
	rest   Pending
	ctx    context.Context //nolint:containedctx // it is the call's, handed over once
	cancel context.CancelFunc
}

// finish answers a call that has to wait in another goroutine: one that waits for work, so
// that its stack has grown already, or a new one. Their number is bounded by that of the
// calls.
func (s *Server) finish(j job) {
	select {
	case s.work <- j:
		return
	default:
	}
	s.all.Go(func() {
		reply := j.run(nil)
		if s.workers.Add(1) > maxWorkers {
			s.workers.Add(-1)
			return
		}
		defer s.workers.Add(-1)
		for {
			select {
			case next := <-s.work:
				reply = next.run(reply)
			case <-s.stop:
				return
			}
		}
	})
}

// run finishes the call, with room for its reply that it gives back.
func (j job) run(room []byte) []byte {
	defer j.cancel()
	reply, err := j.rest.Finish(j.ctx, room[:0])
	j.conn.answer(j.stream, reply, err)
	if cap(reply) > maxOutbound {
		return nil
	}
	return reply
}

// callContext is the context of a call that has to wait: it ends with the caller's
// deadline, with the stream and with the connection.
func (c *conn) callContext(s *stream) (context.Context, context.CancelFunc) {
	if s.timeout > 0 {
		return context.WithDeadline(c.ctx, s.began.Add(s.timeout))
	}
	return context.WithCancel(c.ctx)
}
