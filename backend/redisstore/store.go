package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/backend"
)

var _ backend.Starter = (*Store)(nil)

// version stands between the prefix and the key of a take.
const version = "rl1:"

// Store is a backend.Store in Redis. Make one with New, and Close it.
type Store struct {
	client  redis.UniversalClient
	cluster bool
	prefix  string
	timeout time.Duration
	// nodes and answered are for the nodes of a cluster.
	nodes    nodes
	answered func(server string, took time.Duration, err error)
	log      *slog.Logger

	// group sends what waits at the same time together; nil on a cluster, whose nodes have
	// one each.
	group *group

	// now is the clock of a test; nil: Redis' own.
	now func() int64

	// running are the goroutines that have sent something. kept is the number of tokens that
	// calls over several scripts could not put back.
	running sync.WaitGroup
	kept    atomic.Uint64
}

// New returns a store for the Redis that the options name. It connects to nothing before
// the first call, so that a Redis that is late is no error here.
func New(o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		client: o.client(), cluster: o.Type == Cluster, prefix: o.KeyPrefix + version, timeout: o.ReadTimeout,
		answered: o.Answered, log: o.Logger,
	}
	s.nodes.store = s
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		tags() // takes some milliseconds, which no probe should
		cluster.OnNewNode(func(node *redis.Client) {
			node.AddHook(nodeHook{s, node.Options().Addr})
			s.join(node.Options().Addr, node)
		})
	} else {
		s.group = &group{store: s, client: s.client, merge: true}
	}
	return s, nil
}

// Close ends all connections, after the calls in progress have put back what they must.
// No call may begin any more.
func (s *Store) Close() error {
	s.running.Wait()
	if err := s.client.Close(); err != nil {
		return wrap("closing Redis", err)
	}
	return nil
}

// Ping asks Redis for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return wrap("asking Redis for a sign of life", err)
	}
	return nil
}

// Pool is the state of the connections.
type Pool struct {
	// Open and Idle are the connections there are, and those of them that nobody uses.
	Open, Idle int
	// Waits is the number of calls so far that waited for a free connection, and Timeouts
	// of those that waited in vain.
	Waits, Timeouts uint64
}

// Pool returns the state of the connections to all servers.
func (s *Store) Pool() Pool {
	stats := s.client.PoolStats()
	return Pool{
		Open: int(stats.TotalConns), Idle: int(stats.IdleConns),
		Waits: uint64(stats.WaitCount), Timeouts: uint64(stats.Timeouts),
	}
}

// Kept is the number of tokens so far that were to be put back and could not be, because
// Redis did not answer within a call over several slots.
func (s *Store) Kept() uint64 { return s.kept.Load() }

// Take implements backend.Store. Its errors are *Error, or those of backend.Check. It waits
// at most for the context's deadline, and for Options.ReadTimeout.
func (s *Store) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	err := backend.Await(ctx, s, takes, dst)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return wrap("taking from Redis", err)
	}
	return err
}

// Start implements backend.Starter. Options.ReadTimeout is its only deadline.
func (s *Store) Start(_ time.Time, takes []backend.Take, dst []backend.Decision, then backend.Continuation) {
	if err := backend.Check(takes, dst); err != nil || len(takes) == 0 {
		backend.End(then, err)
		return
	}
	all := s.split(takes, dst)
	if len(all) == 1 {
		all[0].then = then
		s.send(all[0])
		return
	}
	s.startSeveral(all, takes, dst, then)
}

// send has a part sent to the server of its slot, with what else waits for that.
func (s *Store) send(p *part) {
	switch {
	case s.group != nil:
		s.group.send(p)
	default:
		if node := s.nodes.at(p.slot); node != nil {
			node.group.send(p)
		} else {
			s.search(p)
		}
	}
}

// search has the client of a cluster find the server of a part.
func (s *Store) search(p *part) {
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		reply, err := s.run(ctx, []*part{p})
		if f := s.finish(p, reply, err); f != nil {
			f.Flush()
		}
	})
}

// elsewhere has the parts of a script sent to another server, if the one that was asked says
// that it is not the right one, or is no part of the cluster any more.
func (s *Store) elsewhere(sc *script, err error) bool {
	if !s.cluster || !redis.HasErrorPrefix(err, "MOVED") && !redis.HasErrorPrefix(err, "ASK") &&
		!redis.HasErrorPrefix(err, "TRYAGAIN") && !errors.Is(err, redis.ErrClosed) {
		return false
	}
	for _, p := range sc.parts {
		s.search(p)
	}
	return true
}
