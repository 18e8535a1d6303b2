//go:build integration

package chaos

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// silent is the address of a server that accepts connections and never says a word.
func silent(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		l.Close() //nolint:errcheck // nothing is to be accepted any more
		accepting.Wait()
		for _, c := range conns {
			c.Close() //nolint:errcheck // nothing was said
		}
	})
	return l.Addr().String()
}

// unreachable is an address at which packets get lost.
func unreachable(t *testing.T) string {
	t.Helper()
	addr, free := swallow(t, 0)
	t.Cleanup(free)
	return addr
}

// swallow has packets to a port of this machine get lost until free is called; 0 is any
// port. A socket whose queue of connections is full drops those that ask for one more.
func swallow(t *testing.T, number int) (addr string, free func()) {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(socket)
	var queued []net.Conn
	free = func() {
		for _, c := range queued {
			c.Close() //nolint:errcheck // nothing was said
		}
		syscall.Close(socket) //nolint:errcheck // nothing was accepted
	}
	err = errors.Join(
		syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(socket, &syscall.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}}),
		syscall.Listen(socket, 0))
	if err != nil {
		t.Fatal(err)
	}
	if at, err := syscall.Getsockname(socket); err == nil {
		if inet, ok := at.(*syscall.SockaddrInet4); ok {
			number = inet.Port
		}
	}
	for range 8 {
		c, err := (&net.Dialer{Timeout: 100 * time.Millisecond}).DialContext(t.Context(), "tcp", local(number))
		if err != nil {
			return local(number), free // the queue is full
		}
		queued = append(queued, c)
	}
	t.Fatal("the queue of the socket does not fill")
	return "", nil
}

// Connections that are never made, or where nobody speaks, hold up neither the start nor a
// call nor the end, whatever REDIS_TIMEOUT says.
func TestSilence(t *testing.T) {
	for name, tt := range map[string]struct {
		server func(*testing.T) string
		env    func(a, b string) settings // of two servers
	}{
		"packets get lost":       {unreachable, func(a, _ string) settings { return settings{"REDIS_URL": a} }},
		"nobody speaks":          {silent, func(a, _ string) settings { return settings{"REDIS_URL": a, "REDIS_AUTH": "secret"} }},
		"nobody speaks TLS":      {silent, func(a, _ string) settings { return settings{"REDIS_URL": a, "REDIS_TLS": "true"} }},
		"sentinels are away":     {unreachable, sentinels},
		"sentinels do not speak": {silent, sentinels},
		"nodes are away":         {unreachable, nodes},
		"nodes do not speak":     {silent, nodes},
		"prefetching": {unreachable, func(a, _ string) settings {
			return settings{"REDIS_URL": a, "PREFETCH": "auto", "GRPC_ENGINE": "lean"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			with := tt.env(tt.server(t), tt.server(t))
			with["REDIS_TIMEOUT"], with["DRAIN_DELAY"], with["SHUTDOWN_TIMEOUT"] = "1m", "0", "4s"
			s, control := start(t, with), start(t, nil)
			l := startLoad(t, []*instance{s}, control, 100)
			pause(1500 * time.Millisecond)
			l.end()
			r := row{seen: l.seen, control: l.calm}
			if l.seen.errors > 0 {
				t.Errorf("%d of %d calls had no answer", l.seen.errors, len(l.seen.calls))
			}
			if alone, most := l.seen.alone(&l.calm), r.allowance(); float64(alone) > most {
				t.Errorf("%d of %d answers were late, p99.9 is %v", alone, len(l.seen.calls), l.seen.percentile(999))
			}
			if code, page := s.get("/readyz"); code != http.StatusServiceUnavailable {
				t.Errorf("/readyz is %d %s, want 503", code, page)
			}
			began := time.Now()
			s.Signal(syscall.SIGTERM)
			if err := s.Wait(); err != nil {
				t.Errorf("the process ended with %v, want exit code 0", err)
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("the end took %v, want SHUTDOWN_TIMEOUT at most", took)
			}
			t.Logf("%d calls, %d late, worst %v; the end took %v", len(l.seen.calls), l.seen.over(late), l.seen.percentile(1000), time.Since(began))
		})
	}
}

func sentinels(a, b string) settings {
	return settings{"REDIS_TYPE": "SENTINEL", "REDIS_URL": strings.Join([]string{"main", a, b}, ",")}
}

func nodes(a, b string) settings {
	return settings{"REDIS_TYPE": "CLUSTER", "REDIS_URL": strings.Join([]string{a, b}, ",")}
}
