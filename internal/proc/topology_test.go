package proc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/internal/proc"
)

func TestProxy(t *testing.T) {
	addr, _ := proc.Redis(t)
	p := proc.NewProxy(t, addr)
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ping := func(within time.Duration) (time.Duration, error) {
		began := time.Now()
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return 0, err
		}
		if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
			return 0, err
		}
		_, err := io.ReadFull(conn, make([]byte, len("+PONG\r\n")))
		return time.Since(began), err
	}
	if _, err := ping(5 * time.Second); err != nil {
		t.Fatalf("a ping: %v", err)
	}
	p.Delay(30 * time.Millisecond)
	if took, err := ping(5 * time.Second); err != nil || took < 30*time.Millisecond {
		t.Errorf("a delayed ping took %v, %v, want 30ms", took, err)
	}
	p.Delay(0)
	p.Stall()
	if _, err := ping(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stalled ping: %v, want no answer", err)
	}
	p.Resume()
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("+PONG\r\n"))); err != nil {
		t.Errorf("after the stall: %v, want the answer", err)
	}
	p.Refuse(true)
	if _, err := ping(5 * time.Second); err == nil {
		t.Error("a ping over a connection that was reset was answered")
	}
	p.Refuse(false)
	if conn, err = net.Dial("tcp", p.Addr()); err != nil {
		t.Fatal(err)
	}
	if _, err := ping(5 * time.Second); err != nil {
		t.Errorf("over a new connection: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

func TestRedisSentinel(t *testing.T) {
	set := proc.RedisSentinel(t, "pass", "other")
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: set.Name, SentinelAddrs: set.Sentinels, Password: "pass", SentinelPassword: "other", Protocol: 2, DisableIdentity: true,
	})
	defer c.Close() //nolint:errcheck // the servers go as well
	if err := c.Set(t.Context(), "k", "v", time.Minute).Err(); err != nil {
		t.Error(err)
	}
}

func TestRedisClusterWithReplicas(t *testing.T) {
	set := proc.RedisClusterWith(t, 3, true)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: set.Replicas[:1], Protocol: 2, DisableIdentity: true})
	defer c.Close() //nolint:errcheck // the servers go as well
	var masters atomic.Int32
	err := c.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
		masters.Add(1)
		return c.Ping(ctx).Err()
	})
	if err != nil || masters.Load() != 3 || len(set.Processes) != 6 {
		t.Errorf("%d masters, %v and %d processes, want 3 and 6", masters.Load(), err, len(set.Processes))
	}
}

// Clients are sent to the proxies, whichever node they ask.
func TestAClusterBehindProxies(t *testing.T) {
	set, proxies := proc.RedisClusterBehind(t, 3)
	for _, addr := range append(set.Masters, proxies[0].Addr()) {
		c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
		slots, err := c.ClusterSlots(t.Context()).Result() //nolint:staticcheck // Redis 6.2 has no other way
		if err = errors.Join(err, c.Close()); err != nil || len(slots) != len(proxies) {
			t.Fatalf("%v, %v, want a range of slots for each of %d masters", slots, err, len(proxies))
		}
		for i, slot := range slots {
			if got, want := slot.Nodes[0].Addr, proxies[i].Addr(); got != want {
				t.Errorf("%s says that slots from %d on are at %s, want %s", addr, slot.Start, got, want)
			}
		}
	}
}
