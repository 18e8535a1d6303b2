package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/redisstore"
	"github.com/sluice-rls/sluice/internal/proc"
)

// failure makes a call that must fail, and checks the kind and the text of the error.
func failure(t *testing.T, store backend.Store, ctx context.Context, kind string) { //nolint:revive // t comes first in a test
	t.Helper()
	err := store.Take(ctx, []backend.Take{perDay("secret-key", 10, 1)}, make([]backend.Decision, 1))
	e, ok := errors.AsType[*redisstore.Error](err)
	if !ok || e.Kind() != kind {
		t.Errorf("Take: %v (cause %v), want an error of kind %q", err, errors.Unwrap(err), kind)
		return
	}
	for _, secret := range []string{"127.0.0.1", "hunter2", "secret-key", "shop-user"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error %q tells %q", err, secret)
		}
	}
}

func TestErrorKinds(t *testing.T) {
	t.Parallel()
	addr, p := proc.Redis(t, "--requirepass", "hunter2")
	c := client(t, addr)
	c.Options().Password = "hunter2"
	store := open(t, redisstore.Options{Addrs: []string{addr}, Password: "hunter2"})
	do := func(args ...any) {
		t.Helper()
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}

	failure(t, open(t, redisstore.Options{Addrs: []string{addr}, Password: "hunter"}), t.Context(), redisstore.KindAuth)
	failure(t, open(t, redisstore.Options{Addrs: []string{addr}}), t.Context(), redisstore.KindAuth)
	nobody := net.JoinHostPort("127.0.0.1", strconv.Itoa(proc.FreePort(t)))
	failure(t, open(t, redisstore.Options{Addrs: []string{nobody}}), t.Context(), redisstore.KindNetwork)

	left, leave := context.WithCancel(t.Context())
	leave()
	failure(t, store, left, redisstore.KindCanceled)

	do("CONFIG", "SET", "min-replicas-to-write", "1")
	failure(t, store, t.Context(), redisstore.KindLoading)
	do("CONFIG", "SET", "min-replicas-to-write", "0")
	do("CONFIG", "SET", "maxmemory", "1")
	failure(t, store, t.Context(), redisstore.KindMemory)
	do("CONFIG", "SET", "maxmemory", "0")
	do("REPLICAOF", "127.0.0.1", "1")
	failure(t, store, t.Context(), redisstore.KindReadOnly)
	do("REPLICAOF", "NO", "ONE")
	take(t, store, perDay("secret-key", 10, 1))

	p.Signal(syscall.SIGSTOP)
	began := time.Now()
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	failure(t, store, short, redisstore.KindTimeout)
	failure(t, open(t, redisstore.Options{Addrs: []string{addr}, ReadTimeout: 20 * time.Millisecond}), t.Context(), redisstore.KindTimeout)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("two calls of 20 ms to a server that hangs took %v", took)
	}
	fullPool(t, addr)
	p.Signal(syscall.SIGCONT)
}

// fullPool makes two calls to a server that hangs over a pool of one connection.
func fullPool(t *testing.T, addr string) {
	t.Helper()
	store := open(t, redisstore.Options{
		Addrs: []string{addr}, PoolSize: 1, PoolTimeout: 10 * time.Millisecond, ReadTimeout: 2 * time.Second,
	})
	ctx, cancel := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() {
		store.Take(ctx, []backend.Take{perDay("k", 10, 1)}, make([]backend.Decision, 1)) //nolint:errcheck // it hangs
	})
	for store.Pool().Open == 0 {
		runtime.Gosched()
	}
	failure(t, store, t.Context(), redisstore.KindPool)
	cancel()
	first.Wait()
}

func TestClusterDown(t *testing.T) {
	addr, _ := proc.Redis(t, "--cluster-enabled", "yes")
	failure(t, open(t, redisstore.Options{Addrs: []string{addr}}), t.Context(), redisstore.KindCluster)
}

func TestClosed(t *testing.T) {
	addr, _ := proc.Redis(t)
	store, err := redisstore.New(redisstore.Options{Addrs: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	take(t, store, perDay("k", 10, 1))
	if err := store.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if pool := store.Pool(); pool.Open != 1 || pool.Idle != 1 {
		t.Errorf("Pool() = %+v, want one connection, idle", pool)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	failure(t, store, t.Context(), redisstore.KindClosed)
	if err := store.Ping(t.Context()); err == nil {
		t.Error("Ping answers after Close")
	}
}

// TestLostAnswerIsNotSentAgain cuts connections between a take and its answer (R75).
func TestLostAnswerIsNotSentAgain(t *testing.T) {
	t.Parallel()
	single, _ := proc.Redis(t)
	cluster := proc.RedisCluster(t, 1)[0]
	for name, addr := range map[string]string{"single": single, "cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			relay := newRelay(t, addr)
			o := redisstore.Options{Addrs: []string{relay.addr}}
			if name == "cluster" {
				o.Type = redisstore.Cluster
				_, port, err := net.SplitHostPort(relay.addr)
				if err != nil {
					t.Fatal(err)
				}
				if err := client(t, addr).ConfigSet(t.Context(), "cluster-announce-port", port).Err(); err != nil {
					t.Fatal(err)
				}
			}
			store := open(t, o)
			take(t, store, perDay("secret-key", 10, 1))
			relay.cut.Store(true)
			failure(t, store, t.Context(), redisstore.KindNetwork)
			relay.cut.Store(false)
			if got := take(t, store, perDay("secret-key", 10, 1))[0]; got.Remaining() != 7 {
				t.Errorf("%d tokens after three takes, want 7: the lost one was charged once", got.Remaining())
			}
			if n := relay.takes.Load(); n != 4 { // EVALSHA and EVAL for the first
				t.Errorf("%d scripts were sent for three takes, want 4", n)
			}
		})
	}
}

// relay passes bytes on to a server, and can cut a connection once the server has
// answered a script.
type relay struct {
	addr, server string
	takes        atomic.Int64
	cut          atomic.Bool
}

func newRelay(t *testing.T, server string) *relay {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: l.Addr().String(), server: server}
	var serving sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	serving.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server)
			if err != nil {
				in.Close() //nolint:errcheck // the test sees it
				continue
			}
			mu.Lock()
			open = append(open, in, out)
			mu.Unlock()
			var asked atomic.Bool
			serving.Go(func() { r.forward(out, in, &asked) })
			serving.Go(func() { r.back(in, out, &asked) })
		}
	})
	t.Cleanup(func() {
		l.Close() //nolint:errcheck // ends Accept
		mu.Lock()
		for _, c := range open {
			c.Close() //nolint:errcheck // ends the copying
		}
		mu.Unlock()
		serving.Wait()
	})
	return r
}

func (r *relay) forward(out io.WriteCloser, in io.Reader, asked *atomic.Bool) {
	defer out.Close() //nolint:errcheck // nothing to do about it
	buffer := make([]byte, 64<<10)
	for {
		n, err := in.Read(buffer)
		if bytes.HasPrefix(buffer[:n], []byte("*")) && bytes.Contains(buffer[:n], []byte("\r\neval")) {
			r.takes.Add(1)
			asked.Store(true)
		}
		if _, werr := out.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (r *relay) back(out io.WriteCloser, in io.Reader, asked *atomic.Bool) {
	defer out.Close() //nolint:errcheck // nothing to do about it
	buffer := make([]byte, 64<<10)
	for {
		n, err := in.Read(buffer)
		if err != nil || asked.Load() && r.cut.Load() {
			return
		}
		if _, err := out.Write(buffer[:n]); err != nil {
			return
		}
	}
}
