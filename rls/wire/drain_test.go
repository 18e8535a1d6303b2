package wire_test

import (
	"context"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sluice-rls/sluice/rls/wire"
)

// serve is start for a test that ends the server itself.
func serve(t *testing.T, o wire.Options) (*wire.Server, *bufconn.Listener) {
	t.Helper()
	o.Method = method
	if e, ok := o.Handler.(*echo); ok {
		e.ended = t.Context().Done()
	}
	srv, ln := wire.New(o), bufconn.Listen(64<<10)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return srv, ln
}

// until reads up to a frame of a type.
func until[F http2.Frame](p *peer) F {
	p.tb.Helper()
	for {
		f, err := p.next()
		if err != nil {
			p.tb.Fatalf("waiting for a %T: %v", *new(F), err)
		}
		if f, ok := f.(F); ok {
			return f
		}
	}
}

// RFC 9113 section 6.8: a warning first, and the last stream when the peer has heard it.
func TestShutdownLosesNoCallThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &echo{release: make(chan struct{})}
		srv, ln := serve(t, wire.Options{Handler: h})
		p := connect(t, ln)
		p.call(1, "wait")
		p.must(p.flush())
		synctest.Wait()
		down := make(chan struct{})
		go func() {
			defer close(down)
			srv.Shutdown(t.Context())
		}()
		if g := until[*http2.GoAwayFrame](p); g.LastStreamID != math.MaxInt32 || g.ErrCode != http2.ErrCodeNo {
			t.Errorf("first %v", g)
		}
		ping := until[*http2.PingFrame](p)
		p.call(3, "sent before the warning came")
		p.must(p.framer.WritePing(true, ping.Data))
		p.call(5, "sent too late")
		p.must(p.flush())
		if r := p.await(3); r.status != "0" {
			t.Errorf("the call between = %+v", r)
		}
		if g := until[*http2.GoAwayFrame](p); g.LastStreamID != 3 || g.ErrCode != http2.ErrCodeNo {
			t.Errorf("then %v", g)
		}
		close(h.release)
		if r := p.await(1); r.status != "0" {
			t.Errorf("the call that waited = %+v", r)
		}
		if _, told := p.goAway(); told {
			t.Error("a third GOAWAY")
		}
		<-down
		if _, err := ln.Dial(); err == nil {
			t.Error("the listener is open")
		}
	})
}

func TestShutdownCutsWhatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, ln := serve(t, wire.Options{Handler: &echo{}})
		p := connect(t, ln)
		p.call(1, "wait")
		p.must(p.flush())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		began := time.Now()
		srv.Shutdown(ctx)
		if took := time.Since(began); took != 8*time.Second {
			t.Errorf("Shutdown took %v, want 8s", took)
		}
	})
}

func TestShutdownDoesNotWaitForAnIdlePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, ln := serve(t, wire.Options{Handler: &echo{}})
		p := connect(t, ln)
		p.call(1, "x")
		p.must(p.flush())
		p.await(1)
		began := time.Now()
		srv.Shutdown(t.Context()) // the peer does not answer the PING
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Shutdown took %v", took)
		}
	})
}

func TestAConnectionGoesAtItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ln := serve(t, wire.Options{Handler: &echo{}, MaxConnectionAge: time.Hour, MaxConnectionAgeGrace: time.Minute})
		p := connect(t, ln)
		p.call(1, "wait")
		p.must(p.flush())
		began := time.Now()
		until[*http2.GoAwayFrame](p)
		if age := time.Since(began); age < 53*time.Minute || age > 67*time.Minute {
			t.Errorf("told to go after %v, want an hour or so", age)
		}
		told := time.Now()
		p.goAway()
		if grace := time.Since(told); grace < 59*time.Second || grace > 62*time.Second {
			t.Errorf("cut after %v, want a minute", grace)
		}
	})
}

// slowListener gives connections whose writes take as long as it says.
type slowListener struct {
	*bufconn.Listener
	delay *atomic.Int64
}

// Accept is part of net.Listener.
func (l slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return slowConn{c, l.delay}, err
}

type slowConn struct {
	net.Conn
	delay *atomic.Int64
}

// Write is part of net.Conn.
func (c slowConn) Write(p []byte) (int, error) {
	if d := c.delay.Load(); d > 0 {
		time.Sleep(time.Duration(d))
	}
	return c.Conn.Write(p)
}

// An answer that another goroutine is about to write is not cut off by the end.
func TestTheEndWaitsForWhatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &echo{release: make(chan struct{})}
		srv := wire.New(wire.Options{Method: method, Handler: h})
		ln := slowListener{bufconn.Listen(64 << 10), new(atomic.Int64)}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ln) }()
		p := connect(t, ln.Listener)
		p.call(1, "wait")
		p.must(p.flush())
		synctest.Wait()
		ln.delay.Store(int64(4 * time.Second))
		down := make(chan struct{})
		go func() {
			defer close(down)
			srv.Shutdown(t.Context())
		}()
		synctest.Wait() // the warning is being written
		close(h.release)
		if r := p.await(1); r.status != "0" {
			t.Errorf("the call = %+v", r)
		}
		<-down
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
