package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

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

// holdConnections opens n connections, makes a call on each, and leaves them until done.
func holdConnections(ctx context.Context, addr string, n int, done func() error) error {
	first, err := firstBytes()
	if err != nil {
		return err
	}
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
			conns[i], errs[i] = callOnce(ctx, addr, first)
			<-gate
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return done()
}

// callOnce makes a call on a new connection, and leaves that open.
func callOnce(ctx context.Context, addr string, first []byte) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", addr)
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
