package wire_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluice-rls/sluice/rls/wire"
)

// flood sends what write makes, again and again, until the server does not take it, at
// most n times; and gives how often it did and the reason for the end.
func (p *peer) flood(n int, write func(i int)) (sent int, code http2.ErrCode) {
	p.tb.Helper()
	ended := make(chan http2.ErrCode, 1)
	go func() {
		code, _ := p.goAway()
		ended <- code
	}()
	for sent < n {
		for range 100 {
			write(sent)
			sent++
		}
		if p.flush() != nil {
			break
		}
	}
	select {
	case code = <-ended:
	case <-time.After(patience):
		p.tb.Errorf("after %d times the connection goes on", sent)
	}
	return sent, code
}

// Each flood is ended after a bounded number of frames, and told why.
func TestFloodsEndTheirConnection(t *testing.T) {
	for _, tt := range []struct {
		name  string
		most  int // frames
		first func(p *peer)
		write func(p *peer, i int)
	}{
		{"PING", 10_500, nil, func(p *peer, _ int) { p.must(p.framer.WritePing(false, [8]byte{})) }},
		{"SETTINGS", 10_500, nil, func(p *peer, i int) {
			p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}))
		}},
		{"PRIORITY", 10_500, nil, func(p *peer, i int) {
			p.must(p.framer.WritePriority(uint32(2*i+1), http2.PriorityParam{}))
		}},
		{"WINDOW_UPDATE", 10_500, nil, func(p *peer, _ int) { p.must(p.framer.WriteWindowUpdate(0, 1)) }},
		{"unknown frames", 10_500, nil, func(p *peer, _ int) { p.must(p.framer.WriteRawFrame(0x77, 0, 0, nil)) }},
		{"empty DATA", 10_500, func(p *peer) { p.open(1) }, func(p *peer, _ int) { p.must(p.framer.WriteData(1, false, nil)) }},
		{"DATA on closed streams", 10_500, func(p *peer) { p.call(1, "x") }, func(p *peer, _ int) { p.must(p.framer.WriteData(1, false, []byte("x"))) }},
		{"empty CONTINUATION", 10_500, func(p *peer) {
			p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.header()}))
		}, func(p *peer, _ int) { p.must(p.framer.WriteContinuation(1, false, nil)) }},
		{"CONTINUATION without end", 400, func(p *peer) {
			p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.header()}))
		}, func(p *peer, i int) {
			p.must(p.framer.WriteContinuation(1, false, p.encode("x-filler", strconv.Itoa(i)+strings.Repeat("v", 1000))))
		}},
		{"rapid reset", 11_000, nil, func(p *peer, i int) {
			p.open(uint32(2*i + 1))
			p.must(p.framer.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel))
		}},
		{"rapid reset of other requests", 11_000, nil, func(p *peer, i int) {
			p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: uint32(2*i + 1), EndHeaders: true,
				BlockFragment: p.encode(":method", "POST", ":scheme", "http", ":path", "/o", "content-type", "application/grpc"),
			}))
			p.must(p.framer.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ln := start(t, wire.Options{Other: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })})
			p := connect(t, ln)
			if tt.first != nil {
				tt.first(p)
			}
			sent, code := p.flood(10*tt.most, func(i int) { tt.write(p, i) })
			// What lies in the socket's buffers when the end comes is sent in vain.
			const buffered = 64 << 10 / 9
			if sent > tt.most+buffered+100 || code != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("ended with %v after %d frames, want ENHANCE_YOUR_CALM by %d", code, sent, tt.most)
			}
			check(t, ln)
		})
	}
}

// Resets do not buy work: a call that was reset counts until it is answered.
func TestResetsDoNotRaiseWhatIsWorkedOn(t *testing.T) {
	const most = 50
	h := make(held, 200)
	ln := start(t, wire.Options{Handler: h, MaxStreams: most})
	p := connect(t, ln)
	for i := range uint32(200) {
		p.call(2*i+1, "wait")
		p.must(p.framer.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
	}
	p.must(p.flush())
	for refused := 0; refused < 200-most; {
		f, err := p.next()
		p.must(err)
		if r, ok := f.(*http2.RSTStreamFrame); ok && r.ErrCode == http2.ErrCodeRefusedStream {
			refused++
		}
	}
	if len(h) != most {
		t.Errorf("%d calls at once, want %d", len(h), most)
	}
	for range most {
		give(<-h, nil, nil)
	}
	p.call(401, "wait")
	p.must(p.flush())
	give(<-h, []byte("room"), nil)
	if got := p.await(401); got.data != string(framed("room")) {
		t.Errorf("a call after the others ended = %+v", got)
	}
}

// heap is the memory in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestHugeHeadersAreRefusedAndCostNothing(t *testing.T) {
	ln := start(t, wire.Options{})
	p := connect(t, ln)
	before := heap()
	for i := range uint32(200) {
		// One entry of the dynamic table, named over and over: 3 MB for 800 bytes.
		block := append(p.header(), p.encode("x-bomb", strings.Repeat("b", 3900))...)
		again := p.encode("x-bomb", strings.Repeat("b", 3900))
		for range 800 {
			block = append(block, again...)
		}
		p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block, EndHeaders: true, EndStream: true}))
		p.must(p.flush())
		if r := p.await(2*i + 1); r.status != strconv.Itoa(http.StatusRequestHeaderFieldsTooLarge) {
			t.Fatalf("stream %d = %+v, want 431", 2*i+1, r)
		}
	}
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("200 huge headers left %d bytes", grown)
	}
	p.call(401, "hello") // the connection goes on, and its table is in step
	p.must(p.flush())
	if r := p.await(401); r.status != "0" {
		t.Errorf("a call after them = %+v", r)
	}
}

func TestBrokenPeersAreTold(t *testing.T) {
	f := func(name string, want http2.ErrCode, write func(p *peer)) {
		t.Run(name, func(t *testing.T) {
			ln := start(t, wire.Options{})
			p := dial(t, ln)
			write(p)
			_ = p.flush()
			if code, told := p.goAway(); !told || code != want {
				t.Errorf("GOAWAY %v, %v, want %v", code, told, want)
			}
			check(t, ln)
		})
	}
	greet := func(p *peer) {
		p.out.WriteString(http2.ClientPreface)
		p.must(p.framer.WriteSettings())
	}
	f("garbage", http2.ErrCodeProtocol, func(p *peer) { p.out.WriteString("GET / HTTP/1.1\r\nHost: x\r\n\r\n") })
	f("no SETTINGS", http2.ErrCodeProtocol, func(p *peer) {
		p.out.WriteString(http2.ClientPreface)
		p.must(p.framer.WritePing(false, [8]byte{}))
	})
	f("a frame too large", http2.ErrCodeFrameSize, func(p *peer) {
		greet(p)
		p.must(p.framer.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 16385)))
	})
	f("more than the window", http2.ErrCodeFlowControl, func(p *peer) {
		greet(p)
		p.must(p.framer.WriteWindowUpdate(0, 1<<31-1))
	})
	f("a broken block", http2.ErrCodeCompression, func(p *peer) {
		greet(p)
		p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0x0f}, EndHeaders: true}))
	})
	f("an old stream", http2.ErrCodeStreamClosed, func(p *peer) {
		greet(p)
		p.call(5, "x")
		p.call(3, "x")
	})
}

// A peer that opens no window holds its own answers and nothing else, and not for ever.
func TestAPeerThatOpensNoWindowIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := start(t, wire.Options{MaxStreams: 100})
		p := connect(t, ln, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range uint32(101) {
			p.call(2*i+1, "x")
		}
		p.must(p.flush())
		if r := p.await(201); r.reset != http2.ErrCodeRefusedStream {
			t.Errorf("the call beyond the bound = %+v", r)
		}
		began := time.Now()
		check(t, ln)
		p.goAway()
		if took := time.Since(began); took < 19*time.Second || took > 22*time.Second {
			t.Errorf("cut after %v, want about 20s", took)
		}
	})
}

// A peer that does not read is not read from, and is cut.
func TestAPeerThatDoesNotReadIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := start(t, wire.Options{})
		p := connect(t, ln, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		p.must(p.framer.WriteWindowUpdate(0, 1<<30))
		p.must(p.flush())
		began, sent := time.Now(), 0
		for ; ; sent++ {
			p.call(uint32(2*sent+1), "blow 10000")
			if p.flush() != nil {
				break
			}
		}
		if took := time.Since(began); took < 19*time.Second || took > 22*time.Second {
			t.Errorf("cut after %v, want about 20s", took)
		}
		// Its own buffers hold what it has sent; of answers there are two buffers at most.
		if sent > 5000 {
			t.Errorf("%d calls were taken from it", sent)
		}
		check(t, ln)
	})
}

func TestAPeerThatSaysNothingIsCut(t *testing.T) {
	f := func(name string, o wire.Options, text string) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := start(t, o)
				p := dial(t, ln)
				p.out.WriteString(text)
				p.must(p.flush())
				began := time.Now()
				p.goAway()
				if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
					t.Errorf("cut after %v, want about 10s", took)
				}
			})
		})
	}
	f("nothing", wire.Options{}, "")
	f("half a preface", wire.Options{}, "PRI * HTTP/2.0")
	f("half a frame", wire.Options{}, http2.ClientPreface+"\x00\x00")
	f("a TLS handshake never finished", wire.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, "\x16\x03\x01")
}

func TestHalfOpenStreamsAreBounded(t *testing.T) {
	const most = 4096
	ln := start(t, wire.Options{})
	p := connect(t, ln)
	before := heap()
	for i := range uint32(most + 1) {
		p.open(2*i + 1)
	}
	go func() { _ = p.flush() }()
	if r := p.await(2*most + 1); r.reset != http2.ErrCodeRefusedStream {
		t.Errorf("stream %d = %+v, want a refusal", 2*most+1, r)
	}
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("%d half-open streams take %d bytes", most, grown)
	}
	check(t, ln)
}

// What comes of messages in part is bounded over all connections.
func TestMessagesInPartAreBounded(t *testing.T) {
	const most = 1 << 20
	ln := start(t, wire.Options{MaxBuffered: most})
	part := make([]byte, 16000)
	copy(part, "\x00\x00\x10\x00\x00")
	refused := 0
	for range 2 {
		p := connect(t, ln)
		for i := range uint32(100) {
			p.open(2*i + 1)
			p.must(p.framer.WriteData(2*i+1, false, part))
			if i < 65 {
				continue
			}
			p.must(p.flush())
			if r := p.await(2*i + 1); r.status == "8" {
				refused++
			}
			break
		}
		_ = p.conn.Close()
	}
	if refused == 0 {
		t.Error("no message in part was refused")
	}
}

// One connection gets a quarter of what all may have, so that it does not shut others out.
func TestMessagesInPartOfOneConnectionAreBounded(t *testing.T) {
	ln := start(t, wire.Options{MaxBuffered: 20 << 20})
	part := make([]byte, 16000)
	copy(part, "\x00\x00\x10\x00\x00")
	p := connect(t, ln)
	const fit = 5 << 20 / 16000
	for i := range uint32(fit + 1) {
		p.open(2*i + 1)
		p.must(p.framer.WriteData(2*i+1, false, part))
		if i%50 == 0 {
			p.must(p.flush())
		}
	}
	p.must(p.flush())
	if r := p.await(2*fit + 1); r.status != "8" {
		t.Errorf("a part beyond a quarter of the bound = %+v, want RESOURCE_EXHAUSTED", r)
	}
	other := connect(t, ln)
	large := framed(strings.Repeat("x", 40_000))
	other.open(1)
	other.must(other.framer.WriteData(1, false, large[:16000]))
	other.must(other.framer.WriteData(1, false, large[16000:32000]))
	other.must(other.framer.WriteData(1, true, large[32000:]))
	other.must(other.flush())
	if r := other.await(1); r.status != "0" || len(r.data) != len(large) {
		t.Errorf("a large message of another connection: status %q and %d bytes", r.status, len(r.data))
	}
}

func TestHalfAMessageIsNotKeptForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := start(t, wire.Options{})
		p := connect(t, ln)
		p.open(1)
		p.must(p.framer.WriteData(1, false, framed("hello")[:7]))
		p.must(p.flush())
		began := time.Now()
		if r := p.await(1); r.status != "4" || time.Since(began) > 30*time.Second {
			t.Errorf("after %v: %+v, want DEADLINE_EXCEEDED within half a minute", time.Since(began), r)
		}
		p.call(3, "hello")
		p.must(p.flush())
		if r := p.await(3); r.data != string(framed("hello")) {
			t.Errorf("the next call = %+v", r)
		}
		_ = p.conn.Close()
	})
}

// handedOver opens a request for the other handler.
func (p *peer) handedOver(id uint32) {
	p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, EndHeaders: true,
		BlockFragment: p.encode(":method", "POST", ":scheme", "http", ":path", "/other", "content-type", "application/grpc"),
	}))
}

// The other handler may read eagerly, and keep what it read.
func TestABodyForTheOtherHandlerHasABound(t *testing.T) {
	ln := start(t, wire.Options{Other: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })})
	p := connect(t, ln)
	p.handedOver(1)
	for range 80 {
		p.must(p.framer.WriteData(1, false, make([]byte, 16_000)))
	}
	p.must(p.flush())
	for {
		f, err := p.next()
		p.must(err)
		if r, ok := f.(*http2.RSTStreamFrame); ok {
			if r.ErrCode != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("ended with %v, want ENHANCE_YOUR_CALM", r.ErrCode)
			}
			break
		}
	}
	check(t, ln)
}

// A stream of the other handler may stay open, whatever of its body has come.
func TestAStreamOfTheOtherHandlerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		ln := start(t, wire.Options{Other: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-release
			w.WriteHeader(http.StatusTeapot)
		})})
		p := connect(t, ln)
		p.must(p.flush())
		time.Sleep(time.Minute)
		p.handedOver(1)
		p.must(p.framer.WriteData(1, false, []byte("hello")))
		p.must(p.flush())
		time.Sleep(time.Minute)
		close(release)
		for {
			f, err := p.next()
			p.must(err)
			if f.Header().StreamID != 1 {
				continue
			}
			if h, ok := f.(*http2.MetaHeadersFrame); ok && h.PseudoValue("status") == "418" {
				break
			}
			if h, ok := f.(*http2.HeadersFrame); ok && !h.StreamEnded() {
				break
			}
			t.Fatalf("%v, want the handler's own answer", f)
		}
		_ = p.conn.Close()
	})
}
