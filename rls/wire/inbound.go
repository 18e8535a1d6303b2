package wire

import (
	"errors"
	"io"
)

// The buffer of a connection grows with what comes at once. It begins small, since most of
// many connections are idle; a frame of the largest size has to fit.
const (
	minInbound = 4 << 10
	maxInbound = 32 << 10
)

// inbound reads frames out of a buffer, in place.
type inbound struct {
	src io.Reader
	// idle is called before each read that may wait for the peer.
	idle func() error
	buf  []byte
	r, w int // buf[r:w] has been received and not used
	low  int // reads in a row that would have fit into half the buffer
}

// lowReads is how many small reads in a row make the buffer smaller.
const lowReads = 256

// fill waits until n bytes are there, n at most the largest frame.
func (in *inbound) fill(n int) error {
	for in.w-in.r < n {
		in.room(n)
		if err := in.idle(); err != nil {
			return err
		}
		m, err := in.src.Read(in.buf[in.w:])
		in.w += m
		in.note(m)
		if err == nil || m > 0 {
			continue
		}
		if errors.Is(err, io.EOF) && in.w > in.r {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// room makes room for at least one byte and for n in all.
func (in *inbound) room(n int) {
	size := len(in.buf)
	switch {
	case in.r == in.w && in.low >= lowReads && size > minInbound:
		size, in.low = size/2, 0
	case in.w == size && in.r == 0:
		size *= 2
	}
	size = min(max(size, minInbound), maxInbound)
	for size < n {
		size *= 2
	}
	switch {
	case size != len(in.buf):
		buf := make([]byte, size)
		in.w = copy(buf, in.buf[in.r:in.w])
		in.buf, in.r = buf, 0
	case in.r > 0:
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
	}
}

// note counts a read of m bytes. One that fills the buffer asks for a larger one.
func (in *inbound) note(m int) {
	if m > len(in.buf)/2 {
		in.low = 0
	} else {
		in.low++
	}
}

// take gives the next n bytes, which are the caller's until it takes or reads more.
func (in *inbound) take(n int) ([]byte, error) {
	if err := in.fill(n); err != nil {
		return nil, err
	}
	p := in.buf[in.r : in.r+n : in.r+n]
	in.r += n
	return p, nil
}

// Read is part of io.Reader, for http2.Framer.
func (in *inbound) Read(p []byte) (int, error) {
	if in.r == in.w {
		if err := in.fill(1); err != nil {
			return 0, err
		}
	}
	n := copy(p, in.buf[in.r:in.w])
	in.r += n
	return n, nil
}
