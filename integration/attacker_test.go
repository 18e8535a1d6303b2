//go:build integration

package integration

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// attacker is an HTTP/2 client that may do as it likes.
type attacker struct {
	t       *testing.T
	conn    net.Conn
	out     bytes.Buffer // what is sent with the next flush
	framer  *http2.Framer
	block   bytes.Buffer
	encoder *hpack.Encoder
}

// attack connects to the gRPC port and says nothing.
func (s *sluice) attack(t *testing.T) *attacker {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", addr(s.grpc))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // it may be closed already
	a := &attacker{t: t, conn: conn}
	a.framer = http2.NewFramer(&a.out, conn)
	a.framer.AllowIllegalWrites = true
	a.encoder = hpack.NewEncoder(&a.block)
	return a
}

// greet sends the preface.
func (a *attacker) greet(settings ...http2.Setting) {
	a.t.Helper()
	a.out.WriteString(http2.ClientPreface)
	a.must(a.framer.WriteSettings(settings...))
}

// must is for frames that go into a buffer.
func (a *attacker) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// flush sends what was written, and reports whether the service still takes it.
func (a *attacker) flush() bool {
	err := a.conn.SetWriteDeadline(time.Now().Add(3 * patience))
	if err == nil {
		_, err = a.conn.Write(a.out.Bytes())
	}
	a.out.Reset()
	return err == nil
}

// fields encodes names and values in turn.
func (a *attacker) fields(namesAndValues ...string) []byte {
	a.t.Helper()
	a.block.Reset()
	for i := 0; i < len(namesAndValues); i += 2 {
		a.must(a.encoder.WriteField(hpack.HeaderField{Name: namesAndValues[i], Value: namesAndValues[i+1]}))
	}
	return bytes.Clone(a.block.Bytes())
}

// header is the header of a call.
func (a *attacker) header() []byte {
	a.t.Helper()
	return a.fields(":method", "POST", ":scheme", "http", ":path", rlsv3.RateLimitService_ShouldRateLimit_FullMethodName,
		":authority", "sluice", "content-type", "application/grpc", "te", "trailers")
}

// open begins a call.
func (a *attacker) open(stream uint32) {
	a.t.Helper()
	a.must(a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: a.header(), EndHeaders: true}))
}

// call makes a call.
func (a *attacker) call(stream uint32, message []byte) {
	a.t.Helper()
	a.open(stream)
	a.must(a.framer.WriteData(stream, true, message))
}

// message is a request with its prefix.
func message(t *testing.T, r *rlsv3.RateLimitRequest) []byte {
	t.Helper()
	b, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	n := len(b)
	return append([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, b...)
}

// flood sends what write makes until the service ends the connection, n times at most, and
// reads what comes back.
func (a *attacker) flood(n int, write func(i int)) {
	a.t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, a.conn)
		ended <- err
	}()
	for i := 0; i < n; {
		for range 100 {
			write(i)
			i++
		}
		if !a.flush() {
			break
		}
	}
	a.ends(ended)
}

// isCut waits until the service ends the connection.
func (a *attacker) isCut() {
	a.t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, a.conn)
		ended <- err
	}()
	a.ends(ended)
}

func (a *attacker) ends(ended <-chan error) {
	a.t.Helper()
	select {
	case err := <-ended:
		if errors.Is(err, net.ErrClosed) {
			a.t.Error("the connection ended on this side")
		}
	case <-time.After(3 * patience):
		a.t.Error("the connection goes on")
	}
}
