package proc

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// SentinelSet is a master, a replica and three sentinels that watch them.
type SentinelSet struct {
	// Name is what the sentinels call the master.
	Name string
	// Sentinels are their addresses.
	Sentinels []string
	// Servers are the two servers, of which the first is the master at the start.
	Servers []*Process
	// Addrs are the addresses of the servers.
	Addrs []string
}

// RedisSentinel starts a set whose servers want one password and whose sentinels another,
// none if empty, and waits until every sentinel knows all the others and the replica. A
// master that is silent for half a second is replaced.
func RedisSentinel(tb testing.TB, password, sentinelPassword string) *SentinelSet {
	tb.Helper()
	set := &SentinelSet{Name: "main"}
	var auth []string
	if password != "" {
		auth = []string{"--requirepass", password, "--masterauth", password}
	}
	master, p := Redis(tb, auth...)
	set.Addrs, set.Servers = append(set.Addrs, master), append(set.Servers, p)
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		tb.Fatal(err)
	}
	replica, p := Redis(tb, append(auth, "--replicaof", host, port, "--repl-diskless-sync-delay", "0")...)
	set.Addrs, set.Servers = append(set.Addrs, replica), append(set.Servers, p)
	lines := []string{
		fmt.Sprintf("sentinel monitor %s %s %s 2", set.Name, host, port),
		"sentinel down-after-milliseconds " + set.Name + " 500",
		"sentinel failover-timeout " + set.Name + " 2000",
	}
	if password != "" {
		lines = append(lines, "sentinel auth-pass "+set.Name+" "+password)
	}
	if sentinelPassword != "" {
		lines = append(lines, "requirepass "+sentinelPassword)
	}
	for range 3 {
		set.Sentinels = append(set.Sentinels, startSentinel(tb, lines, sentinelPassword))
	}
	for _, addr := range set.Sentinels {
		set.await(tb, addr, sentinelPassword)
	}
	return set
}

func startSentinel(tb testing.TB, lines []string, password string) string {
	tb.Helper()
	port := strconv.Itoa(FreePort(tb))
	config := filepath.Join(tb.TempDir(), "sentinel.conf")
	text := strings.Join(append([]string{"port " + port, "bind 127.0.0.1"}, lines...), "\n") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", port)
	c := redis.NewClient(&redis.Options{Addr: addr, Password: password, Protocol: 2, DisableIdentity: true})
	defer c.Close() //nolint:errcheck // it was for the start only
	Start(tb, Options{
		Name: "sentinel-" + port, Path: Find(tb, "redis-server"), Args: []string{config, "--sentinel"},
		Ready: func(ctx context.Context) error { return c.Ping(ctx).Err() },
	})
	return addr
}

// await waits until a sentinel knows the others and the replica.
func (set *SentinelSet) await(tb testing.TB, addr, password string) {
	tb.Helper()
	c := redis.NewSentinelClient(&redis.Options{Addr: addr, Password: password, Protocol: 2, DisableIdentity: true})
	defer c.Close() //nolint:errcheck // it was for the wait only
	ctx, cancel := patient(tb)
	defer cancel()
	err := set.Servers[0].poll(ctx, "waiting for a sentinel", func(ctx context.Context) error {
		master, err := c.Master(ctx, set.Name).Result()
		if err != nil {
			return err
		}
		if master["num-slaves"] != "1" || master["num-other-sentinels"] != "2" {
			return fmt.Errorf("it knows %s replicas and %s other sentinels", master["num-slaves"], master["num-other-sentinels"])
		}
		replicas, err := c.Replicas(ctx, set.Name).Result()
		if err != nil {
			return err
		}
		if len(replicas) != 1 || replicas[0]["master-link-status"] != "ok" {
			return fmt.Errorf("no replica in step: %v", replicas)
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}
