package proc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// attempts is how often a server is started on another port before the test fails: the
// port that FreePort found can be taken before the server binds it.
const attempts = 5

// busOffset is the distance from a cluster node's port to the port of its bus, the same
// in every version of Redis.
const busOffset = 10000

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// Redis starts a redis-server on a free port of 127.0.0.1, without persistence, and
// returns its host:port. Arguments are added at the end, as in
// Redis(t, "--requirepass", "secret").
func Redis(tb testing.TB, args ...string) (string, *Process) {
	tb.Helper()
	return redisOnAny(tb, FreePort, args...)
}

// RedisOn is Redis on a given port: that of a server that was stopped, say.
func RedisOn(tb testing.TB, port int, args ...string) (string, *Process) {
	tb.Helper()
	addr, p, err := redisOn(tb, port, nil, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return addr, p
}

func redisOnAny(tb testing.TB, choose func(testing.TB) int, args ...string) (string, *Process) {
	tb.Helper()
	for attempt := 1; ; attempt++ {
		addr, p, err := redisOn(tb, choose(tb), nil, args...)
		if err == nil {
			return addr, p
		}
		if attempt == attempts {
			tb.Fatal(err)
		}
	}
}

func redisOn(tb testing.TB, port int, env []string, args ...string) (string, *Process, error) {
	tb.Helper()
	number := strconv.Itoa(port)
	p, err := start(tb, Options{
		Name: "redis-" + number,
		Path: Find(tb, "redis-server"),
		Args: append([]string{
			"--port", number, "--bind", "127.0.0.1", "--dir", tb.TempDir(),
			"--save", "", "--appendonly", "no", "--daemonize", "no",
		}, args...),
		Env: env,
	})
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := patient(tb)
	defer cancel()
	// The line is this process's own; an answer at the port could be another's.
	if _, err := p.log.wait(ctx, "Ready to accept connections"); err != nil {
		p.Stop()
		return "", nil, fmt.Errorf("starting %s: %w\n%s", p.name, err, p.log.tail(4<<10))
	}
	return net.JoinHostPort("127.0.0.1", number), p, nil
}

// RedisCluster starts a Redis Cluster of some masters that share the slots evenly, waits
// until each of them serves, and returns their addresses in the order of their slots.
func RedisCluster(tb testing.TB, masters int) []string {
	tb.Helper()
	return RedisClusterWith(tb, masters, false).Masters
}

// ClusterSet is a Redis Cluster.
type ClusterSet struct {
	// Masters are the addresses of the masters in the order of their slots, and Replicas
	// those of their replicas, empty without any.
	Masters, Replicas []string
	// Processes are those of Masters, then those of Replicas.
	Processes []*Process
}

// RedisClusterWith is RedisCluster, with a replica for each master if wanted. A master that
// is silent for two seconds is replaced.
func RedisClusterWith(tb testing.TB, masters int, replicas bool) *ClusterSet {
	tb.Helper()
	return redisCluster(tb, masters, replicas, func() (string, *Process) {
		return redisOnAny(tb, freeClusterPort, clusterArgs...)
	})
}

// RedisClusterBehind is RedisCluster with a proxy before each node, by which clients know it;
// the nodes speak with each other as ever. The set has the nodes' own addresses, in the order
// of the proxies.
func RedisClusterBehind(tb testing.TB, masters int) (*ClusterSet, []*Proxy) {
	tb.Helper()
	var proxies []*Proxy
	set := redisCluster(tb, masters, false, func() (string, *Process) {
		port := freeClusterPort(tb)
		p := NewProxy(tb, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		_, announced, err := net.SplitHostPort(p.Addr())
		if err != nil {
			tb.Fatal(err)
		}
		proxies = append(proxies, p)
		return RedisOn(tb, port, append(slices.Clone(clusterArgs),
			"--cluster-announce-port", announced, "--cluster-announce-bus-port", strconv.Itoa(port+busOffset))...)
	})
	return set, proxies
}

// clusterArgs are what makes a server a node.
var clusterArgs = []string{
	"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
	"--repl-diskless-sync-delay", "0",
}

// redisCluster makes a cluster of nodes that it starts one by one, the masters first.
func redisCluster(tb testing.TB, masters int, replicas bool, start func() (string, *Process)) *ClusterSet {
	tb.Helper()
	set, count := &ClusterSet{}, masters
	if replicas {
		count *= 2
	}
	addrs, nodes := make([]string, count), make([]*redis.Client, count)
	set.Processes = make([]*Process, count)
	for i := range count {
		addrs[i], set.Processes[i] = start()
		nodes[i] = redis.NewClient(&redis.Options{Addr: addrs[i], Protocol: 2, DisableIdentity: true})
		tb.Cleanup(func() { nodes[i].Close() }) //nolint:errcheck // its server goes next
	}
	set.Masters, set.Replicas = addrs[:masters], addrs[masters:]
	ctx, cancel := patient(tb)
	defer cancel()
	for i, node := range nodes {
		if err := joinCluster(ctx, node, i, masters, addrs[0]); err != nil {
			tb.Fatalf("forming a cluster: node %d: %v", i, err)
		}
	}
	for i, node := range nodes {
		serves := func(ctx context.Context) error { return clusterServes(ctx, node, masters, count) }
		if err := set.Processes[i].poll(ctx, "waiting for the cluster", serves); err != nil {
			tb.Fatal(err)
		}
	}
	for i := masters; i < count; i++ {
		follows := func(ctx context.Context) error { return follow(ctx, nodes[i], nodes[i-masters]) }
		if err := set.Processes[i].poll(ctx, "waiting for a replica", follows); err != nil {
			tb.Fatal(err)
		}
	}
	return set
}

// follow makes a node the replica of a master, and has no complaint once it is in step.
func follow(ctx context.Context, node, master *redis.Client) error {
	info, err := node.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "role:slave") { // telling it again would begin anew
		id, err := master.Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		if err := node.ClusterReplicate(ctx, id).Err(); err != nil {
			return err
		}
	}
	if !strings.Contains(info, "master_link_status:up") {
		return errors.New("it is not in step with its master")
	}
	return nil
}

// freeClusterPort is FreePort for a node whose bus needs a second port.
func freeClusterPort(tb testing.TB) int {
	tb.Helper()
	for {
		port := FreePort(tb)
		if port+busOffset > 65535 {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+busOffset)))
		if err != nil {
			continue
		}
		l.Close() //nolint:errcheck // nothing was accepted
		return port
	}
}

// joinCluster gives node i, of which the first n are masters, its share of the slots and
// tells it of the first node.
// Slots are named one by one, since ADDSLOTSRANGE is younger than Redis 6.2.
func joinCluster(ctx context.Context, node *redis.Client, i, n int, first string) error {
	args := []any{"CLUSTER", "ADDSLOTS"}
	for slot := i * slots / n; slot < (i+1)*slots/n && i < n; slot++ {
		args = append(args, slot)
	}
	if i < n {
		if err := node.Do(ctx, args...).Err(); err != nil {
			return err
		}
	}
	if err := node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
		return err
	}
	if i == 0 {
		return nil
	}
	host, port, err := net.SplitHostPort(first)
	if err != nil {
		return err
	}
	return node.ClusterMeet(ctx, host, port).Err()
}

// clusterServes has no complaint once the node knows all masters and all nodes, and the
// cluster answers for keys.
func clusterServes(ctx context.Context, node *redis.Client, masters, nodes int) error {
	info, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{"cluster_state:ok", fmt.Sprintf("cluster_size:%d", masters), fmt.Sprintf("cluster_known_nodes:%d", nodes), fmt.Sprintf("cluster_slots_ok:%d", slots)} {
		if !strings.Contains(info, want+"\r") {
			return fmt.Errorf("no %s in %q", want, info)
		}
	}
	return nil
}
