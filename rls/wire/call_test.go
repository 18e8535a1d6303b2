package wire_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluice-rls/sluice/rls/wire"
)

// maxText is how much of a status' message is sent.
const maxText = 1024

// zipped is a compressed message with its prefix.
func zipped(t *testing.T, msg string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(msg)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{1}, uint32(b.Len())), b.Bytes()...)
}

func TestCalls(t *testing.T) {
	long := strings.Repeat("m", wire.MaxMessage)
	for _, tt := range []struct {
		name   string
		fields []string
		data   []byte
		want   reply
	}{
		{"a message", nil, framed("hello"), reply{status: "0", data: string(framed("hello"))}},
		{"an empty message", nil, framed(""), reply{status: "0", data: string(framed(""))}},
		{"bytes that are no text", nil, framed("\xff\x00\xfe"), reply{status: "0", data: string(framed("\xff\x00\xfe"))}},
		{"a timeout", []string{"grpc-timeout", "20m"}, framed("x"), reply{status: "0", data: string(framed("x"))}},
		{"identity", []string{"grpc-encoding", "identity"}, framed("x"), reply{status: "0", data: string(framed("x"))}},
		{"gzip", []string{"grpc-encoding", "gzip"}, zipped(t, "hello"), reply{status: "0", data: string(framed("hello"))}},
		{"gzip, not compressed", []string{"grpc-encoding", "gzip"}, framed("x"), reply{status: "0", data: string(framed("x"))}},
		{"the largest message", nil, framed("fail" + long[4:]), reply{status: "3", message: "100%25 wrong: %C3%BC%0A"}},
		{"an error that says much", nil, framed("blow " + long[:2000]), reply{status: "2", message: `strconv.Atoi: parsing "` + long[:maxText-23]}},
		{"an error", nil, framed("fail"), reply{status: "3", message: "100%25 wrong: %C3%BC%0A"}},

		{"a message too large", nil, framed(long + "x"), reply{status: "8", message: "message of 4194305 bytes: more than 4194304"}},
		{"a bomb", []string{"grpc-encoding", "gzip"}, zipped(t, long+long), reply{status: "8", message: "message of 4194305 bytes: more than 4194304"}},
		{"another encoding", []string{"grpc-encoding", "zstd"}, framed("x"), reply{status: "12", message: `grpc-encoding "zstd": neither gzip nor identity`}},
		{"compressed without an encoding", nil, zipped(t, "x"), reply{status: "13", message: "compressed message without a grpc-encoding"}},
		{"no gzip", []string{"grpc-encoding", "gzip"}, []byte("\x01\x00\x00\x00\x01x"), reply{status: "13", message: "decompressing the message: unexpected EOF"}},
		{"an unknown flag", nil, []byte("\x02\x00\x00\x00\x00"), reply{status: "13", message: "message with an unknown flag"}},
		{"no message", nil, nil, reply{status: "12", message: "the call has not exactly one message"}},
		{"two messages", nil, append(framed("a"), framed("b")...), reply{status: "12", message: "the call has not exactly one message"}},
		{"half a prefix", nil, []byte{0, 0}, reply{status: "13", message: "the message is shorter than its prefix says"}},
		{"half a message", nil, framed("hello")[:7], reply{status: "13", message: "the message is shorter than its prefix says"}},
		{"a timeout of nothing", []string{"grpc-timeout", "0n"}, framed("x"), reply{status: "4", message: "the deadline was over before the call"}},
		{"a timeout that is none", []string{"grpc-timeout", "1day"}, framed("x"), reply{status: "13", message: `grpc-timeout "1day": not digits and a unit`}},
	} {
		for _, part := range []int{16384, 1000} {
			if part < 16384 && len(tt.data) > 1<<20 {
				continue // one way is enough
			}
			t.Run(tt.name, func(t *testing.T) {
				ln := start(t, wire.Options{})
				p := connect(t, ln)
				p.open(1, tt.fields...)
				// The windows are as large as a part of the messages: the peer waits for more.
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					p.sendParts(1, tt.data, part)
				}()
				got := p.await(1)
				if got.data, tt.want.data = trim(got.data), trim(tt.want.data); got != tt.want {
					t.Errorf("got %.300v, want %.300v", got, tt.want)
				}
				_ = p.conn.Close()
				<-sent
			})
		}
	}
}

// trim makes a long text fit for a message.
func trim(s string) string {
	if len(s) > 100 {
		return s[:100]
	}
	return s
}

// sendParts sends the body of a call in frames of a size, without regard to windows.
func (p *peer) sendParts(stream uint32, data []byte, size int) {
	for {
		n := min(size, len(data))
		_ = p.framer.WriteData(stream, n == len(data), data[:n])
		if data = data[n:]; p.flush() != nil || len(data) == 0 {
			return
		}
	}
}

func TestPaddingPriorityAndTrailersOfTheClient(t *testing.T) {
	ln := start(t, wire.Options{})
	p := connect(t, ln)
	block := p.header("x-more", strings.Repeat("v", 200))
	p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: block[:10], PadLength: 200,
		Priority: http2.PriorityParam{StreamDep: 0, Weight: 3},
	}))
	p.must(p.framer.WriteContinuation(1, false, block[10:20]))
	p.must(p.framer.WriteContinuation(1, true, block[20:]))
	msg := framed("hello")
	p.must(p.framer.WriteDataPadded(1, false, msg[:3], make([]byte, 100)))
	p.must(p.framer.WriteData(1, false, nil))
	p.must(p.framer.WriteDataPadded(1, false, msg[3:], make([]byte, 255)))
	p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode("x-sum", "1"), EndHeaders: true, EndStream: true}))
	p.must(p.flush())
	if got := p.await(1); got.status != "0" || got.data != string(msg) {
		t.Errorf("got %+v", got)
	}
}

func TestCallsThatWaitAreAnsweredWhenTheyCan(t *testing.T) {
	h := &echo{release: make(chan struct{})}
	ln := start(t, wire.Options{Handler: h})
	p := connect(t, ln)
	p.call(1, "wait 1")
	p.call(3, "now")
	p.must(p.flush())
	if got := p.await(3); got.data != string(framed("now")) {
		t.Errorf("the second call = %+v", got)
	}
	close(h.release)
	if got := p.await(1); got.data != string(framed("wait 1")) {
		t.Errorf("the first call = %+v", got)
	}
}

func TestTheDeadlineIsTheHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := start(t, wire.Options{Handler: &echo{}})
		p := connect(t, ln)
		p.open(1, "grpc-timeout", "50m")
		p.must(p.framer.WriteData(1, true, framed("wait")))
		p.must(p.flush())
		began := time.Now()
		if got := p.await(1); got.status != "4" || got.message != "context deadline exceeded" || time.Since(began) != 50*time.Millisecond {
			t.Errorf("after %v: %+v", time.Since(began), got)
		}
		_ = p.conn.Close()
	})
}

func TestACallThatNobodyAnswersEndsSoonAfterItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := make(held, 2)
		ln := start(t, wire.Options{Handler: h})
		p := connect(t, ln)
		p.open(1, "grpc-timeout", "50m")
		p.must(p.framer.WriteData(1, true, framed("x")))
		p.must(p.flush())
		began := time.Now()
		if got := p.await(1); got.status != "4" || time.Since(began) > 500*time.Millisecond {
			t.Errorf("after %v: %+v, want DEADLINE_EXCEEDED within half a second", time.Since(began), got)
		}
		give(<-h, []byte("late"), nil)
		p.call(3, "x")
		p.must(p.flush())
		give(<-h, []byte("in time"), nil)
		if got := p.await(3); got.data != string(framed("in time")) {
			t.Errorf("the next call = %+v", got)
		}
		_ = p.conn.Close()
	})
}

func TestTheAnswerForACallerThatHasLeftIsDropped(t *testing.T) {
	h := make(held, 3)
	ln := start(t, wire.Options{Handler: h})
	p := connect(t, ln)
	p.call(1, "x")
	p.must(p.framer.WriteRSTStream(1, http2.ErrCodeCancel))
	p.call(3, "x")
	p.must(p.flush())
	first, second := <-h, <-h // the reset lies between them
	give(first, []byte("for nobody"), nil)
	give(second, []byte("for somebody"), nil)
	for {
		f, err := p.next()
		p.must(err)
		if id := f.Header().StreamID; id == 3 {
			break
		} else if id != 0 {
			t.Fatalf("%v, want nothing of the first call", f)
		}
	}
	p.call(5, "x")
	p.must(p.flush())
	to := <-h
	_ = p.conn.Close()
	give(to, []byte("for nobody"), nil)
	other := connect(t, ln)
	other.call(1, "x")
	other.must(other.flush())
	give(<-h, []byte("for another"), nil)
	if got := other.await(1); got.data != string(framed("for another")) {
		t.Errorf("a call of another connection = %+v", got)
	}
}

func TestAnswersGivenTogetherAreFlushedOnce(t *testing.T) {
	h := make(held, 3)
	ln := start(t, wire.Options{Handler: h})
	p := connect(t, ln)
	for id := uint32(1); id <= 5; id += 2 {
		p.call(id, "x")
	}
	p.must(p.flush())
	var dirty []wire.Flusher
	for range 3 {
		dirty = append(dirty, (<-h).Answer([]byte("reply"), nil))
	}
	if dirty[0] == nil || dirty[0] != dirty[1] || dirty[1] != dirty[2] {
		t.Fatalf("the answers are to be flushed by %v, want the same connection", dirty)
	}
	dirty[0].Flush()
	dirty[0].Flush() // of nothing
	for id := uint32(1); id <= 5; id += 2 {
		if got := p.await(id); got.data != string(framed("reply")) {
			t.Errorf("call %d = %+v", id, got)
		}
	}
}

// RFC 9113 section 6.9: no more than the windows let out, and all of it in the end.
func TestAnswersObeyTheWindowsOfThePeer(t *testing.T) {
	ln := start(t, wire.Options{})
	p := connect(t, ln, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 7})
	p.call(1, "blow 100000")
	p.must(p.flush())
	var got int
	for got < 7 {
		f, err := p.next()
		p.must(err)
		if d, ok := f.(*http2.DataFrame); ok {
			got += len(d.Data())
		}
	}
	if got != 7 {
		t.Fatalf("%d bytes came through a window of 7", got)
	}
	p.must(p.framer.WriteWindowUpdate(1, 100))
	p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	p.must(p.framer.WriteWindowUpdate(0, 1<<20))
	p.must(p.flush())
	if r := p.await(1); r.status != "0" || got+len(r.data) != 5+100000 {
		t.Errorf("status %q, %d bytes, want 100005", r.status, got+len(r.data))
	}
}

// RFC 7541 section 4.2: a peer that makes its table smaller is told that it is not used.
func TestASmallerTableIsAcknowledgedInABlock(t *testing.T) {
	ln := start(t, wire.Options{})
	p := connect(t, ln, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	p.decoder.SetAllowedMaxDynamicTableSize(0)
	p.call(1, "a")
	p.call(3, "b")
	p.must(p.flush())
	for _, stream := range []uint32{1, 3} {
		if r := p.await(stream); r.status != "0" {
			t.Errorf("stream %d: %+v", stream, r)
		}
	}
}

func TestWhatIsNoCallIsTheOtherHandlers(t *testing.T) {
	ln := start(t, wire.Options{})
	p := connect(t, ln)
	for i, fields := range [][]string{
		{":method", "GET", ":scheme", "http", ":path", "/"},
		{":method", "GET", ":scheme", "http", ":path", method},
		{":method", "POST", ":scheme", "http", ":path", method, "content-type", "application/json"},
		{":method", "POST", ":scheme", "http", ":path", "/other", "content-type", "application/grpc"},
	} {
		stream := uint32(2*i + 1)
		p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.encode(fields...), EndHeaders: true, EndStream: true}))
		p.must(p.flush())
		if r := p.await(stream); r.status != "404" || r.data != "no such thing\n" {
			t.Errorf("%v = %+v", fields, r)
		}
	}
}
