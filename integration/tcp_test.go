//go:build integration

package integration

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// testTCP opens connections and speaks HTTP over them: only the connection is limited, 5
// a second and 10 at once. No other test of the same edge opens any.
func testTCP(t *testing.T, e *edge) {
	t.Helper()
	d := net.Dialer{Timeout: patience}
	// connect reports whether an answer came through.
	connect := func() bool {
		conn, err := d.DialContext(t.Context(), "tcp", addr(e.tcp))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // each has one answer and is not used again
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		// Both fail on a connection that was closed.
		io.WriteString(conn, "GET / HTTP/1.1\r\nhost: tcp\r\nconnection: close\r\n\r\n") //nolint:errcheck // the read tells
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return false
		}
		return response.StatusCode == http.StatusOK && response.Body.Close() == nil
	}
	all := tally{}
	start := time.Now()
	for range 40 {
		if connect() {
			all.passed++
		} else {
			all.limited++
		}
	}
	all.elapsed = time.Since(start)
	all.obeys(t, 10, 5)
	stats := e.Stats(`ratelimit\.tcp_edge\..*`)
	if got := int(stats["ratelimit.tcp_edge.over_limit"]); got != all.limited {
		t.Errorf("Envoy counts %v, want %d over_limit", stats, all.limited)
	}
	if stats["ratelimit.tcp_edge.error"] != 0 {
		t.Errorf("Envoy counts %v, want no error", stats)
	}
}
