package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// measureIdle opens many connections to each variant, makes one call on each, and tells
// what memory the server has taken when all of them are idle.
func measureIdle(ctx context.Context, o options, rules string, stdout io.Writer) error {
	_, _ = fmt.Fprintf(stdout, "\n%d connections, one call on each, then idle\n", o.idle)
	first, err := firstBytes()
	if err != nil {
		return err
	}
	for _, v := range variants {
		if v.redis || !v.echo() && !chosen(o.variants, v.name) {
			continue
		}
		server, _, err := startVariant(ctx, o, v, rules)
		if err != nil {
			return err
		}
		memory, err := idle(server, first, o.idle)
		server.stop()
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		_, _ = fmt.Fprintf(stdout, "%10s  %.0f MiB at most\n", v.name, float64(memory)/(1<<20))
	}
	return nil
}

// firstBytes are a greeting and a call.
func firstBytes() ([]byte, error) {
	requests, err := cases[0].requests()
	if err != nil {
		return nil, err
	}
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, nil)
	if err := framer.WriteSettings(); err != nil {
		return nil, err
	}
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", rlsv3.RateLimitService_ShouldRateLimit_FullMethodName},
		{":authority", "bench"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return nil, err
		}
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		return nil, err
	}
	msg := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(requests[0])))
	err = framer.WriteData(1, true, append(msg, requests[0]...))
	return out.Bytes(), err
}

func idle(server *process, first []byte, n int) (int64, error) {
	conns := make([]net.Conn, n)
	errs := make([]error, n)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	gate := make(chan struct{}, 100)
	var wg sync.WaitGroup
	for i := range conns {
		gate <- struct{}{}
		wg.Go(func() {
			conns[i], errs[i] = callOnce(server.addr, first)
			<-gate
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return server.resident()
}

// callOnce makes a call on a new connection, and leaves that open.
func callOnce(addr string, first []byte) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return conn, err
	}
	if _, err := conn.Write(first); err != nil {
		return conn, err
	}
	framer := http2.NewFramer(nil, conn)
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return conn, fmt.Errorf("reading the answer: %w", err)
		}
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
			return conn, nil
		}
	}
}
