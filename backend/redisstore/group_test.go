package redisstore_test

import (
	"context"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/redisstore"
	"github.com/sluice-rls/sluice/internal/proc"
)

// TestWaitingCallsShareARoundTrip counts how often Redis had to read.
func TestWaitingCallsShareARoundTrip(t *testing.T) {
	t.Parallel()
	addr, _ := proc.Redis(t)
	store := open(t, redisstore.Options{Addrs: []string{addr}})
	client := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	defer client.Close() //nolint:errcheck // the server goes with the test
	reads := func() int {
		found := regexp.MustCompile(`total_reads_processed:(\d+)`).FindStringSubmatch(client.Info(t.Context(), "stats").Val())
		if found == nil {
			t.Fatal("INFO has no total_reads_processed")
		}
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	limit := backend.Limit{Requests: 5000, Period: time.Hour, Burst: 5000}
	const callers, calls = 64, 100
	before := reads()
	var mu sync.Mutex
	var running sync.WaitGroup
	passed := 0
	for range callers {
		running.Go(func() {
			var dst [1]backend.Decision
			for range calls {
				if err := store.Take(t.Context(), []backend.Take{{Key: []byte("k"), Limit: limit, Hits: 1}}, dst[:]); err != nil {
					t.Error(err)
				}
				if dst[0].OK {
					mu.Lock()
					passed++
					mu.Unlock()
				}
			}
		})
	}
	running.Wait()
	if passed < 5000 || passed > 5100 {
		t.Errorf("%d of %d calls passed, want the 5000 there were", passed, callers*calls)
	}
	if n := reads() - before; n > callers*calls/2 {
		t.Errorf("%d reads of %d calls: they went one by one", n, callers*calls)
	}
}

// TestCallersLeaveAStoppedRedis has more callers than two pipelines bear.
func TestCallersLeaveAStoppedRedis(t *testing.T) {
	t.Parallel()
	addr, p := proc.Redis(t)
	store := open(t, redisstore.Options{Addrs: []string{addr}, ReadTimeout: 200 * time.Millisecond})
	call := func(wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		return store.Take(ctx, []backend.Take{{Key: []byte("k"), Limit: backend.Limit{Requests: 1e6, Period: time.Second, Burst: 1e6}, Hits: 1}}, make([]backend.Decision, 1))
	}
	if err := call(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	p.Signal(syscall.SIGSTOP)
	began := time.Now()
	var running sync.WaitGroup
	for range 200 {
		running.Go(func() {
			if err := call(20 * time.Millisecond); err == nil {
				t.Error("an answer from a Redis that is stopped")
			}
		})
	}
	running.Wait()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("callers left after %v, want 20 ms", took)
	}
	p.Signal(syscall.SIGCONT)
	for end := time.Now().Add(10 * time.Second); ; {
		err := call(time.Second)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
