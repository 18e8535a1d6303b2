package wire_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sluice-rls/sluice/rls/wire"
)

// netHTTP is net/http's client of a server.
func netHTTP(t *testing.T, ln *bufconn.Listener) *http.Client {
	t.Helper()
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return ln.DialContext(ctx) },
		Protocols:   new(http.Protocols),
	}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// A body larger than the windows that a peer begins with goes through the other handler and back.
func TestTheOtherHandlerHasARequestAsNetHTTPWould(t *testing.T) {
	ln := start(t, wire.Options{Other: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Length")
		w.Header().Set("X-Path", r.Method+" "+r.Host+" "+r.URL.String()+" "+r.Header.Get("X-Question"))
		w.WriteHeader(http.StatusAccepted)
		n, err := io.Copy(w, r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Length", strings.Repeat("i", int(n>>18)))
		w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
	})})
	body := bytes.Repeat([]byte("0123456789abcdef"), 3<<14)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://host/a/b?c=d", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("X-Question", strings.Repeat("?", 20_000))
	res, err := netHTTP(t, ln).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	if err != nil || res.Body.Close() != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusAccepted || !bytes.Equal(got, body) {
		t.Errorf("status %d, %d bytes, want 202 and %d", res.StatusCode, len(got), len(body))
	}
	if p, want := res.Header.Get("X-Path"), "POST host /a/b?c=d "+strings.Repeat("?", 20_000); p != want {
		t.Errorf("the handler saw %.100q, want %.100q", p, want)
	}
	if res.Trailer.Get("X-Length") != "iii" || res.Trailer.Get("X-Late") != "yes" {
		t.Errorf("trailers = %v", res.Trailer)
	}
}

func TestAPanicOfTheOtherHandlerResetsItsStreamAlone(t *testing.T) {
	ln := start(t, wire.Options{Other: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })})
	p := connect(t, ln)
	p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, EndHeaders: true, EndStream: true,
		BlockFragment: p.encode(":method", "POST", ":scheme", "http", ":path", "/other", "content-type", "application/grpc"),
	}))
	p.must(p.flush())
	if r := p.await(1); !r.wasReset || r.reset != http2.ErrCodeInternal {
		t.Errorf("got %+v, want a reset with INTERNAL_ERROR", r)
	}
	p.call(3, "x")
	p.must(p.flush())
	if r := p.await(3); r.status != "0" {
		t.Errorf("a call after it = %+v", r)
	}
}

func TestRequestsInTheOtherHandlerAreBounded(t *testing.T) {
	ln := start(t, wire.Options{Other: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })})
	for _, contentType := range []string{"application/grpc", "text/plain"} {
		p := connect(t, ln)
		const most = 128
		stream := uint32(1)
		for range 2 { // resets make room
			for range most + 1 {
				p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{
					StreamID: stream, EndHeaders: true,
					BlockFragment: p.encode(":method", "POST", ":scheme", "http", ":path", "/other", "content-type", contentType),
				}))
				stream += 2
			}
			p.must(p.flush())
			if r := p.await(stream - 2); r.reset != http2.ErrCodeRefusedStream {
				t.Errorf("%s: the request beyond the bound = %+v", contentType, r)
			}
			for i := range uint32(most) {
				p.must(p.framer.WriteRSTStream(stream-4-2*i, http2.ErrCodeCancel))
			}
			if contentType == "application/grpc" {
				break // there is room when the handlers have ended
			}
		}
	}
}
