package redisstore_test

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/redisstore"
	"github.com/sluice-rls/sluice/internal/proc"
)

// told is what Answered was told, by server.
type told struct {
	mu    sync.Mutex
	count map[string]int
	errs  map[string]error
}

func (a *told) answered(server string, _ time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count[server]++
	a.errs[server] = err
}

func TestNodesOfACluster(t *testing.T) {
	addrs := proc.RedisCluster(t, 3)
	a := &told{count: map[string]int{}, errs: map[string]error{}}
	s, err := redisstore.New(redisstore.Options{Addrs: addrs[:1], Type: redisstore.Cluster, Answered: a.answered})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the servers go as well
	limit := backend.Limit{Requests: 10, Period: time.Hour, Burst: 10}
	keys := map[string]string{} // one of each server
	for i := range 50 {
		key := fmt.Sprintf("{t%d}:x", i)
		if server := s.Server([]byte(key)); server != "" {
			t.Fatalf("Server(%q) = %q before any call", key, server)
		}
		takes := []backend.Take{{Key: []byte(key), Limit: limit, Hits: 1}}
		if err := s.Take(t.Context(), takes, make([]backend.Decision, 1)); err != nil {
			t.Fatal(err)
		}
		keys[s.Server([]byte(key))] = key
	}
	if len(keys) != 3 {
		t.Fatalf("the keys lie on %v, want three servers", keys)
	}
	for _, addr := range addrs {
		key, probed := keys[addr], a.count[addr]
		if key == "" || probed == 0 {
			t.Fatalf("no answer was told of %s", addr)
		}
		if err := s.Probe(t.Context(), addr); err != nil || a.count[addr] <= probed {
			t.Errorf("Probe(%s): %v after %d answers of it, want one more than %d", addr, err, a.count[addr], probed)
		}
	}
	moveSlots(t, addrs[0], addrs[1], keys[addrs[0]])
	if err := s.Probe(t.Context(), addrs[0]); err != nil {
		t.Errorf("Probe of a server whose slots have moved: %v", err)
	}
	if err := s.Take(t.Context(), []backend.Take{{Key: []byte(keys[addrs[0]]), Limit: limit, Hits: 1}}, make([]backend.Decision, 1)); err != nil {
		t.Error(err)
	}
	if got := s.Server([]byte(keys[addrs[0]])); got != addrs[1] {
		t.Errorf("Server = %s after the move, want %s", got, addrs[1])
	}
	if a.errs[addrs[0]] != nil {
		t.Errorf("a MOVED was told as %v, want no error", a.errs[addrs[0]])
	}
}

// moveSlots moves the slot of a key, and its keys, from one master to another.
func moveSlots(t *testing.T, from, to, key string) {
	t.Helper()
	node := func(addr string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
		t.Cleanup(func() { c.Close() }) //nolint:errcheck // its server goes next
		return c
	}
	a, b := node(from), node(to)
	do := func(c *redis.Client, args ...any) any {
		t.Helper()
		reply, err := c.Do(t.Context(), args...).Result()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return reply
	}
	slot := do(a, "CLUSTER", "KEYSLOT", "rl1:"+key)
	idA, idB := do(a, "CLUSTER", "MYID"), do(b, "CLUSTER", "MYID")
	do(b, "CLUSTER", "SETSLOT", slot, "IMPORTING", idA)
	do(a, "CLUSTER", "SETSLOT", slot, "MIGRATING", idB)
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	keys, ok := do(a, "CLUSTER", "GETKEYSINSLOT", slot, 1000).([]any)
	if !ok || len(keys) == 0 {
		t.Fatalf("the slot has the keys %v, want some", keys)
	}
	for _, k := range keys {
		do(a, "MIGRATE", host, number, k, 0, 1000)
	}
	do(b, "CLUSTER", "SETSLOT", slot, "NODE", idB)
	do(a, "CLUSTER", "SETSLOT", slot, "NODE", idB)
}

func TestProbeNeedsAllThatATakeNeeds(t *testing.T) {
	addr, _ := proc.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	defer admin.Close() //nolint:errcheck // the server goes as well
	s, err := redisstore.New(redisstore.Options{Addrs: []string{addr}, KeyPrefix: "p:"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the server goes as well
	if err := s.Probe(t.Context(), ""); err != nil {
		t.Errorf("Probe: %v", err)
	}
	for _, tt := range []struct {
		set  []any
		undo []any
		kind string
	}{
		{[]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}, redisstore.KindMemory},
		{[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}, redisstore.KindReadOnly},
	} {
		if err := admin.Do(t.Context(), tt.set...).Err(); err != nil {
			t.Fatal(err)
		}
		err := s.Probe(t.Context(), "")
		if e, ok := errors.AsType[*redisstore.Error](err); !ok || e.Kind() != tt.kind {
			t.Errorf("Probe after %v: %v, want kind %q", tt.set, err, tt.kind)
		}
		if err := admin.Do(t.Context(), tt.undo...).Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.Probe(t.Context(), ""); err != nil {
			t.Errorf("Probe after %v: %v", tt.undo, err)
		}
	}
}

func TestAServerWithoutScripts(t *testing.T) {
	addr, _ := proc.Redis(t, "--rename-command", "EVALSHA", "", "--rename-command", "EVAL", "")
	s, err := redisstore.New(redisstore.Options{Addrs: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the server goes as well
	err = s.Probe(t.Context(), "")
	if e, ok := errors.AsType[*redisstore.Error](err); !ok || e.Kind() != redisstore.KindScripts || !strings.Contains(err.Error(), "EVALSHA") {
		t.Errorf("Probe: %v, want one that names what is missing", err)
	}
}

func TestInstances(t *testing.T) {
	addr, _ := proc.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	defer admin.Close() //nolint:errcheck // the server goes as well
	s, err := redisstore.New(redisstore.Options{Addrs: []string{addr}, KeyPrefix: "p:"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the server goes as well
	beat := func(name string, life time.Duration, want, wantRank int) {
		t.Helper()
		if n, rank, err := s.Beat(t.Context(), name, life); n != want || rank != wantRank || err != nil {
			t.Errorf("Beat(%s) = %d, %d, %v, want %d, %d", name, n, rank, err, want, wantRank)
		}
	}
	beat("b", time.Minute, 1, 0)
	beat("b", time.Minute, 1, 0)
	beat("a", time.Minute, 2, 0)
	beat("b", time.Minute, 2, 1)
	beat("c", time.Minute, 3, 2)
	if err := s.Leave(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	beat("b", time.Minute, 2, 1)
	if ttl := admin.PTTL(t.Context(), "p:sluice:instances").Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("the list lives %v, want at most a minute", ttl)
	}
	beat("b", time.Microsecond, 1, 0) // for which a has been silent
}
