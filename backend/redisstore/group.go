package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pipelines is the most pipelines that are in flight at once, unless the last one was
	// crowded: then it is one.
	pipelines = 2
	// crowded is the number of commands of a pipeline from which on the next ones wait for its
	// answer, and gather meanwhile.
	crowded = 16
	// maxCommands bounds a pipeline.
	maxCommands = 50
)

// group sends commands that wait at the same time to one server in one round trip. There is no
// time to wait for: a command goes at once if little is in flight, and else with those that
// came by the time an answer did. So it costs nothing while there is little to do, and the
// more there is, the less each command costs.
type group struct {
	client  redis.UniversalClient
	timeout time.Duration

	mu      sync.Mutex // guards the rest, but for flights
	queue   []*command // bounded by the callers, each of which waits for one
	flying  int
	last    int // commands of the last pipeline
	flights sync.WaitGroup
}

// command is a command in the queue or on its way. Whoever waits for it may leave.
type command struct {
	redis.Cmder

	done chan struct{}
}

// process is redis.UniversalClient.Process.
func (g *group) process(ctx context.Context, cmd redis.Cmder) error {
	c := &command{Cmder: cmd, done: make(chan struct{})}
	g.mu.Lock()
	g.queue = append(g.queue, c)
	g.flushLocked(context.WithoutCancel(ctx))
	g.mu.Unlock()
	select {
	case <-c.done:
		return cmd.Err()
	case <-ctx.Done():
		g.leave(c)
		return ctx.Err()
	}
}

// leave takes a command out of the queue, if it is still there.
func (g *group) leave(c *command) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queue, c); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
}

// flushLocked sends what is in the queue, if little enough is in flight.
func (g *group) flushLocked(ctx context.Context) {
	for len(g.queue) > 0 && g.flying < pipelines && (g.flying == 0 || g.last < crowded) {
		n := min(len(g.queue), maxCommands)
		commands := slices.Clone(g.queue[:n])
		g.queue = slices.Delete(g.queue, 0, n)
		g.flying++
		g.last = n
		g.flights.Go(func() { g.fly(ctx, commands) })
	}
}

// fly sends commands and gives each its answer.
func (g *group) fly(ctx context.Context, commands []*command) {
	g.send(ctx, commands)
	for _, c := range commands {
		close(c.done)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flying--
	g.flushLocked(ctx)
}

// send sends commands, each of which has its own error then.
func (g *group) send(ctx context.Context, commands []*command) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	if len(commands) == 1 {
		_ = g.client.Process(ctx, commands[0].Cmder)
		return
	}
	pipeline := g.client.Pipeline()
	for _, c := range commands {
		_ = pipeline.Process(ctx, c.Cmder)
	}
	_, _ = pipeline.Exec(ctx)
}
