package redisstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/backend"
)

var _ backend.Store = (*Store)(nil)

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

	// group sends the scripts of calls that wait at the same time together; nil on a cluster.
	group *group

	// now is the clock of a test; nil: Redis' own.
	now func() int64

	// settling are the second halves of calls over several scripts whose caller may have
	// left. kept is the number of tokens that they could not put back.
	settling sync.WaitGroup
	kept     atomic.Uint64
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
		answered: o.Answered,
	}
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		tags() // takes some milliseconds, which no probe should
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(nodeHook{s, node.Options().Addr}) })
	} else {
		s.group = &group{client: s.client, timeout: o.ReadTimeout}
	}
	return s, nil
}

// Close ends all connections, after the calls in progress have put back what they must.
// No call may begin any more.
func (s *Store) Close() error {
	s.settling.Wait()
	if s.group != nil {
		s.group.flights.Wait()
	}
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

// Take implements backend.Store. Its errors are *Error, or those of backend.Check. It
// waits at most for the context's deadline, and for Options.ReadTimeout.
func (s *Store) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	if err := backend.Check(takes, dst); err != nil || len(takes) == 0 {
		return err
	}
	batches := s.split(takes)
	if len(batches) == 1 {
		return s.run(ctx, &batches[0], s.argument(&batches[0], takes, false), dst)
	}
	if err := s.runAll(ctx, batches, takes, true, dst); err != nil {
		return err
	}
	s.settle(ctx, batches, takes, dst)
	return nil
}

// split deals the takes out to scripts: one for each slot of a cluster, and none too long.
func (s *Store) split(takes []backend.Take) []batch {
	batches := make([]batch, 0, 1)
	var slotsOf []uint16 // of batches
	var key []byte
	for i := range takes {
		key = append(append(key[:0], s.prefix...), takes[i].Key...)
		var of uint16
		if s.cluster {
			of = slot(key)
		}
		n := slices.Index(slotsOf, of)
		for n >= 0 && len(batches[n].indices) == maxKeys {
			if next := slices.Index(slotsOf[n+1:], of); next < 0 {
				n = -1
			} else {
				n += 1 + next
			}
		}
		if n < 0 {
			n = len(batches)
			batches, slotsOf = append(batches, batch{}), append(slotsOf, of)
		}
		batches[n].add(i, string(key))
	}
	return batches
}

// argument writes the script's argument for a batch, which keeps the leases of its takes.
func (s *Store) argument(b *batch, takes []backend.Take, partial bool) []byte {
	var now int64
	if s.now != nil {
		now = s.now()
	}
	argument := appendHead(make([]byte, 0, headSize+takeSize*len(b.indices)), now, partial)
	for _, i := range b.indices {
		argument = appendTake(argument, &takes[i])
		b.leases = append(b.leases, takes[i].Lease)
	}
	return argument
}

// runAll runs batches side by side and returns the first error.
func (s *Store) runAll(ctx context.Context, batches []batch, takes []backend.Take, partial bool, dst []backend.Decision) error {
	errs := make([]error, len(batches))
	var running sync.WaitGroup
	for n := range batches {
		argument := s.argument(&batches[n], takes, partial)
		running.Go(func() { errs[n] = s.run(ctx, &batches[n], argument, dst) })
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
