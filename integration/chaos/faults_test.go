//go:build integration

package chaos

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/internal/proc"
)

// A scene is Redis with something to be done to it.
type scene struct {
	env settings
	// begin does it, and end undoes it after a while; nil if it needs no undoing.
	begin, end func()
	// keeps says that Redis decides all the while, or nearly: no breaker has to open.
	keeps bool
	// loses says that Redis forgets what was taken, or its clock runs ahead: what passes is
	// not bounded by one bucket then.
	loses bool
}

// A fault is a row of the matrix.
type fault struct {
	name  string
	stage func(t *testing.T) scene
}

var faults = []fault{
	{"none", func(t *testing.T) scene {
		t.Helper()
		addr, _ := proc.Redis(t)
		return scene{env: settings{"REDIS_URL": addr}, begin: func() {}, keeps: true}
	}},
	{"Redis stopped (SIGSTOP)", func(t *testing.T) scene {
		t.Helper()
		addr, p := proc.Redis(t)
		return scene{
			env:   settings{"REDIS_URL": addr},
			begin: func() { p.Signal(syscall.SIGSTOP) },
			end:   func() { p.Signal(syscall.SIGCONT) },
		}
	}},
	{"Redis killed (SIGKILL), back empty", func(t *testing.T) scene {
		t.Helper()
		addr, p := proc.Redis(t)
		return scene{
			env:   settings{"REDIS_URL": addr},
			begin: func() { p.Signal(syscall.SIGKILL) },
			end:   func() { proc.RedisOn(t, port(t, addr)) },
			loses: true,
		}
	}},
	{"Redis restarted at once, empty", func(t *testing.T) scene {
		t.Helper()
		addr, p := proc.Redis(t)
		return scene{
			env: settings{"REDIS_URL": addr},
			begin: func() {
				p.Signal(syscall.SIGKILL)
				<-p.Done()
				proc.RedisOn(t, port(t, addr))
			},
			keeps: true, loses: true,
		}
	}},
	{"host dead, packets get lost", func(t *testing.T) scene {
		t.Helper()
		addr, p := proc.Redis(t)
		var free func()
		return scene{
			env: settings{"REDIS_URL": addr},
			begin: func() {
				p.Signal(syscall.SIGKILL)
				<-p.Done()
				_, free = swallow(t, port(t, addr))
			},
			end: func() {
				free()
				proc.RedisOn(t, port(t, addr))
			},
			loses: true,
		}
	}},
	{"answers 20 ms late", behindProxy(func(p *proc.Proxy) { p.Delay(20 * time.Millisecond) }, func(p *proc.Proxy) { p.Delay(0) }, false)},
	{"network stalls", behindProxy((*proc.Proxy).Stall, (*proc.Proxy).Resume, false)},
	{"connections refused", behindProxy(func(p *proc.Proxy) { p.Refuse(true) }, func(p *proc.Proxy) { p.Refuse(false) }, false)},
	{"connections reset once", behindProxy((*proc.Proxy).Reset, nil, true)},
	{"SCRIPT FLUSH", command(true, false, []any{"SCRIPT", "FLUSH"}, nil)},
	{"FLUSHALL", command(true, true, []any{"FLUSHALL"}, nil)},
	{"maxmemory reached", command(false, false, []any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"})},
	{"Redis made a replica (READONLY)", command(false, false, []any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"})},
	{"busy with a script for 300 ms", command(true, false, []any{"EVAL", busy, 0}, nil)},
	{"Redis' clock an hour ahead", clock(time.Hour)},
	{"Redis' clock an hour behind", clock(-time.Hour)},
	{"Sentinel: master killed", func(t *testing.T) scene {
		t.Helper()
		set := proc.RedisSentinel(t, "", "")
		return scene{
			env:   settings{"REDIS_TYPE": "SENTINEL", "REDIS_URL": set.Name + "," + strings.Join(set.Sentinels, ",")},
			begin: func() { set.Servers[0].Signal(syscall.SIGKILL) },
			loses: true,
		}
	}},
	{"Cluster: one of three masters killed", func(t *testing.T) scene {
		t.Helper()
		set := proc.RedisClusterWith(t, 3, true)
		return scene{
			env:   settings{"REDIS_TYPE": "CLUSTER", "REDIS_URL": strings.Join(set.Masters, ",")},
			begin: func() { set.Processes[hasHot(t, set.Masters)].Signal(syscall.SIGKILL) },
			loses: true,
		}
	}},
	{"Cluster: one node stalls", oneNode((*proc.Proxy).Stall, (*proc.Proxy).Resume, false)},
	{"Cluster: one node cut off", oneNode(func(p *proc.Proxy) { p.Refuse(true) }, func(p *proc.Proxy) { p.Refuse(false) }, false)},
	{"Cluster: one node resets once", oneNode((*proc.Proxy).Reset, nil, true)},
}

// busy keeps Redis from answering anybody for a while.
const busy = `local t = redis.call('TIME')
local till = t[1] * 1000000 + t[2] + 300000
repeat t = redis.call('TIME') until t[1] * 1000000 + t[2] > till
redis.call('SET', 'busy', 1, 'PX', 1)
return 1`

// behindProxy is Redis with a bad network.
func behindProxy(begin, end func(*proc.Proxy), keeps bool) func(*testing.T) scene {
	return func(t *testing.T) scene {
		t.Helper()
		addr, _ := proc.Redis(t)
		p := proc.NewProxy(t, addr)
		s := scene{env: settings{"REDIS_URL": p.Addr()}, begin: func() { begin(p) }, keeps: keeps}
		if end != nil {
			s.end = func() { end(p) }
		}
		return s
	}
}

// command is Redis that is told something, and later something else.
func command(keeps, loses bool, begin, end []any) func(*testing.T) scene {
	return func(t *testing.T) scene {
		t.Helper()
		addr, _ := proc.Redis(t)
		c := node(t, addr)
		do := func(args []any) func() {
			return func() {
				if err := c.Do(context.WithoutCancel(t.Context()), args...).Err(); err != nil {
					t.Errorf("%v: %v", args, err)
				}
			}
		}
		s := scene{env: settings{"REDIS_URL": addr}, begin: do(begin), keeps: keeps, loses: loses}
		if end != nil {
			s.end = do(end)
		}
		return s
	}
}

// clock is Redis whose clock is set.
func clock(by time.Duration) func(*testing.T) scene {
	return func(t *testing.T) scene {
		t.Helper()
		addr, turn := proc.RedisOnClock(t)
		return scene{
			env:   settings{"REDIS_URL": addr},
			begin: func() { turn(by) },
			keeps: true, loses: by > 0,
		}
	}
}

// oneNode is a cluster of three whose nodes are known by proxies before them. Something is
// done to the way to the one that has the hot key.
func oneNode(begin, end func(*proc.Proxy), keeps bool) func(*testing.T) scene {
	return func(t *testing.T) scene {
		t.Helper()
		set, proxies := proc.RedisClusterBehind(t, 3)
		var urls []string
		for _, p := range proxies {
			urls = append(urls, p.Addr())
		}
		hot := 0
		s := scene{
			env:   settings{"REDIS_TYPE": "CLUSTER", "REDIS_URL": strings.Join(urls, ",")},
			begin: func() { hot = hasHot(t, set.Masters); begin(proxies[hot]) },
			keeps: keeps,
		}
		if end != nil {
			s.end = func() { end(proxies[hot]) }
		}
		return s
	}
}

// hasHot is the place of the node that has the bucket of the hot key.
func hasHot(t *testing.T, nodes []string) int {
	t.Helper()
	for i, addr := range nodes {
		keys, err := node(t, addr).Keys(context.WithoutCancel(t.Context()), "*hot*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(keys, func(key string) bool { return !strings.Contains(key, "cold") }) {
			return i
		}
	}
	t.Fatal("no node has the hot key")
	return 0
}

// node is a client of one server.
func node(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1})
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // its server goes next
	return c
}

func port(t *testing.T, addr string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
