package proc

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
)

// Ports are taken from below those that the system gives to outgoing connections
// (32768 and up on Linux), any of which could take a port that was just found free.
const (
	firstPort  = 20000
	portsCount = 12000
)

// portsTaken counts the ports that were handed out. It starts anywhere, since the tests
// of several packages run at the same time.
var portsTaken = func() *atomic.Uint32 {
	n := &atomic.Uint32{}
	n.Store(rand.Uint32N(portsCount))
	return n
}()

// FreePort returns a TCP port of 127.0.0.1 that nobody listens on, another one at each
// call. It is not reserved: a program that finds it taken after all has to be given
// another one.
func FreePort(tb testing.TB) int {
	tb.Helper()
	for range portsCount {
		port := firstPort + int(portsTaken.Add(1)%portsCount)
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			tb.Fatalf("asking for a free port: %v", err)
		}
		l.Close() //nolint:errcheck // nothing was accepted
		return port
	}
	tb.Fatalf("no port from %d to %d is free", firstPort, firstPort+portsCount-1)
	return 0
}
