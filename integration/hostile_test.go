//go:build integration

package integration

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
)

const mebibyte = 1 << 20

// attacks are what one hostile peer can do, and what the service may spend on it: CPU, and
// memory at its highest, that of an idle service (20 MiB) included. All of them meet
// a service of their own. What ends an attack, and with which reason, is tested beside the
// engine.
var attacks = map[string]struct {
	cpu    time.Duration
	memory int64
	f      func(t *testing.T, s *sluice)
}{
	"rapid reset": {500 * time.Millisecond, 40 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		a := s.attack(t)
		a.greet()
		a.flood(100_000, func(i int) {
			a.open(uint32(2*i + 1))
			a.must(a.framer.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel))
		})
	}},
	"CONTINUATION without end": {300 * time.Millisecond, 40 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		a := s.attack(t)
		a.greet()
		a.must(a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.header()}))
		a.flood(100_000, func(i int) {
			a.must(a.framer.WriteContinuation(1, false, a.fields("x-filler", strconv.Itoa(i)+strings.Repeat("v", 1000))))
		})
	}},
	"empty CONTINUATION": {300 * time.Millisecond, 40 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		a := s.attack(t)
		a.greet()
		a.must(a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.header()}))
		a.flood(1_000_000, func(int) { a.must(a.framer.WriteContinuation(1, false, nil)) })
	}},
	// 800 bytes that stand for 3 MB of header, two hundred times.
	"HPACK bombs": {time.Second, 40 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		a := s.attack(t)
		a.greet()
		for i := range uint32(200) {
			block := append(a.header(), a.fields("x-bomb", strings.Repeat("b", 3900))...)
			again := a.fields("x-bomb", strings.Repeat("b", 3900))
			for range 800 {
				block = append(block, again...)
			}
			a.must(a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block, EndHeaders: true, EndStream: true}))
		}
		a.refusals(200)
	}},
	"header lists of 60 kB": {time.Second, 40 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		a := s.attack(t)
		a.greet()
		for i := range uint32(200) {
			block := a.header()
			for n := range 15 {
				block = append(block, a.fields("x-"+strconv.Itoa(n), strconv.Itoa(int(i))+strings.Repeat("\x7e", 4000))...)
			}
			a.headers(2*i+1, block)
		}
		a.refusals(200)
	}},
	"SETTINGS": {500 * time.Millisecond, 40 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		a := s.attack(t)
		a.greet()
		a.flood(1_000_000, func(i int) {
			a.must(a.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}))
		})
	}},
	// With as many open streams as may be, each of these frames concerns all of them.
	"SETTINGS with 4096 open streams": {2 * time.Second, 50 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		a := s.attack(t)
		a.greet()
		for i := range uint32(4096) {
			a.open(2*i + 1)
		}
		a.flood(1_000_000, func(i int) {
			a.must(a.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}))
		})
	}},
	"PING": {500 * time.Millisecond, 40 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		a := s.attack(t)
		a.greet()
		a.flood(1_000_000, func(int) { a.must(a.framer.WritePing(false, [8]byte{})) })
	}},
	"no window for the answers": {time.Second, 50 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		a := s.attack(t)
		a.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		msg := message(t, edgeRequest(descriptor("api_key", "stalled")))
		for i := range uint32(5000) {
			a.call(2*i+1, msg)
		}
		a.flush()
		a.isCut()
	}},
	"a peer that does not read": {2 * time.Second, 50 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		a := s.attack(t)
		a.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		a.must(a.framer.WriteWindowUpdate(0, 1<<30))
		msg := message(t, edgeRequest(descriptor("api_key", "deaf")))
		for i := uint32(1); i < 2_000_000; i += 2 {
			a.call(i, msg)
			if i%100 == 1 && !a.flush() {
				return
			}
		}
		t.Error("a million calls were taken from a peer that does not read")
	}},
	"half-open streams": {time.Second, 50 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		a := s.attack(t)
		a.greet()
		for i := range uint32(20_000) {
			a.open(2*i + 1)
		}
		a.refusals(20_000 - 4096)
	}},
	// 512 MiB of messages that never end: half of that is kept, and no more.
	"messages in part": {4 * time.Second, 400 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		part := make([]byte, 16<<10)
		copy(part, "\x00\x00\x10\x00\x00")
		var all sync.WaitGroup
		for range 8 {
			a := s.attack(t)
			all.Go(func() {
				a.greet()
				for i := range uint32(4096) {
					a.open(2*i + 1)
					a.must(a.framer.WriteData(2*i+1, false, part))
					if !a.flush() {
						return
					}
				}
			})
		}
		all.Wait()
	}},
	"frames too large": {time.Second, 40 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		for range 50 {
			a := s.attack(t)
			a.greet()
			a.must(a.framer.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<24-1)))
			a.flush()
			a.isCut()
		}
	}},
	"no HTTP/2": {time.Second, 40 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		for range 200 {
			a := s.attack(t)
			a.out.WriteString("GET / HTTP/1.1\r\nHost: sluice\r\n\r\n" + strings.Repeat("x", 1<<16))
			a.flush()
			a.isCut()
		}
	}},
	"greetings never finished": {2 * time.Second, 60 * mebibyte, func(t *testing.T, s *sluice) {
		t.Helper()
		for range 1000 {
			a := s.attack(t)
			a.out.WriteString(http2.ClientPreface[:10])
			a.flush()
			defer a.isCut()
		}
	}},
}

// headers sends a header in as many frames as it needs.
func (a *attacker) headers(stream uint32, block []byte) {
	a.t.Helper()
	const most = 16 << 10
	first := block[:min(len(block), most)]
	block = block[len(first):]
	a.must(a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndHeaders: len(block) == 0, EndStream: true}))
	for len(block) > 0 {
		next := block[:min(len(block), most)]
		block = block[len(next):]
		a.must(a.framer.WriteContinuation(stream, len(block) == 0, next))
	}
}

// refusals sends what there is and waits for so many streams to be ended.
func (a *attacker) refusals(n int) {
	a.t.Helper()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		a.flush()
	}()
	a.must(a.conn.SetReadDeadline(time.Now().Add(2 * patience)))
	for n > 0 {
		f, err := a.framer.ReadFrame()
		if err != nil {
			a.t.Errorf("%d refusals have not come: %v", n, err)
			break
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			n--
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				n--
			}
		}
	}
	<-sent
}

// Each attack has a bound on what it costs, and another client is answered meanwhile.
func TestHostilePeersAreBounded(t *testing.T) {
	t.Parallel()
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSluice(t, exampleRules, settings{"GRPC_ENGINE": "lean"})
			s.bounded(t, s.client(t), attack.cpu, attack.memory, func() { attack.f(t, s) })
		})
	}
}

// Handshakes of TLS that never go on after the connection, half a record, or the first
// message, for which the service has done its costly part.
func TestHandshakesNeverFinishedAreBounded(t *testing.T) {
	t.Parallel()
	c := newCertificates(t)
	s := startSluice(t, exampleRules, c.server("lean", false))
	hello := clientHello(t)
	s.bounded(t, c.client(t, s), 3*time.Second, 80*mebibyte, func() {
		for i := range 1500 {
			a := s.attack(t)
			a.out.Write([][]byte{nil, hello[:3], hello}[i%3])
			a.flush()
			defer a.isCut()
		}
	})
}

// clientHello is the first that a client of TLS says.
func clientHello(t *testing.T) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close() //nolint:errcheck // nobody reads from it
	defer server.Close() //nolint:errcheck // see above
	go func() {
		_ = tls.Client(client, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName, NextProtos: []string{"h2"}}).HandshakeContext(t.Context())
	}()
	first := make([]byte, 4096)
	n, err := server.Read(first)
	if err != nil {
		t.Fatal(err)
	}
	return first[:n]
}

// bounded does what f does, while another client makes calls, and checks what the service
// has spent.
func (s *sluice) bounded(t *testing.T, client rlsv3.RateLimitServiceClient, cpu time.Duration, memory int64, f func()) {
	t.Helper()
	before := s.CPU()
	ask(t, client, edgeRequest(descriptor("api_key", "beside")))
	stop := make(chan struct{})
	var beside sync.WaitGroup
	var calls int
	var worst time.Duration
	beside.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			start := time.Now()
			_, err := client.ShouldRateLimit(ctx, edgeRequest(descriptor("api_key", "beside")))
			cancel()
			if err != nil {
				t.Errorf("a call beside: %v", err)
			}
			calls, worst = calls+1, max(worst, time.Since(start))
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	f()
	close(stop)
	beside.Wait()
	spent, peak := s.CPU()-before, s.PeakResident()
	t.Logf("%v CPU, %d MiB; %d calls beside, the longest %v", spent, peak/mebibyte, calls, worst.Round(time.Millisecond))
	if spent > cpu+time.Duration(calls)*time.Millisecond || peak > memory {
		t.Errorf("%v CPU and %d MiB, want at most %v and %d MiB", spent, peak/mebibyte, cpu, memory/mebibyte)
	}
	if worst > 2*time.Second {
		t.Errorf("a call beside took %v", worst)
	}
}
