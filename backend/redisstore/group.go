package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/backend"
)

const (
	// crowded is the number of parts of a pipeline from which on the next ones wait for its
	// answer, and gather meanwhile, where that is not far away. Else two are under way at once.
	crowded = 2
	// near is the time of a round trip for which one pipeline at a time is enough. The longer
	// it takes, the more are under way, since gathering is paid for with waiting.
	near = 250 * time.Microsecond
	// maxFlights bounds the pipelines that are under way at once to one server, and maxParts
	// the parts of each.
	maxFlights, maxParts = 16, 96
)

// commander is a client of go-redis, for one server or for all of them.
type commander interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// group sends what waits at the same time for one server in one round trip, and what may run
// in one script in one script: most of what a take costs Redis and this process is paid once
// for all of them. There is no time to wait for: a part goes at once if little is under way,
// and else with those that came by the time an answer did. So it costs nothing while there
// is little to do, and the more there is, the less each part costs.
type group struct {
	store *Store
	// merge says that parts of several calls may run in one script: all but on a cluster,
	// whose scripts are bound to one slot.
	merge bool

	mu     sync.Mutex // guards the rest
	client commander
	queue  []*part // bounded by who asks: a failover.Store has a bound on its calls
	flying int
	last   int // parts of the last pipeline
	trip   trip
}

// trip is the least time that a round trip took in the last second or two: what it takes at
// least, however much there is to do besides.
type trip struct {
	now, before time.Duration // the least of this second and of the one before
	until       time.Time     // when this second ends
}

func (t *trip) note(end time.Time, took time.Duration) {
	if end.After(t.until) {
		t.before, t.now, t.until = t.now, took, end.Add(time.Second)
	}
	t.now = min(t.now, took)
}

func (t *trip) least() time.Duration {
	if t.before == 0 {
		return t.now
	}
	return min(t.now, t.before)
}

// send has a part sent, and does not wait for it.
func (g *group) send(p *part) {
	p.queued = time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue = append(g.queue, p)
	if g.flying < g.roomLocked() {
		g.flying++
		g.store.running.Go(g.fly)
	}
}

// roomLocked is how many pipelines may be under way.
func (g *group) roomLocked() int {
	room := min(max(int(g.trip.least()/near), 1), maxFlights)
	if g.last < crowded {
		return max(room, 2)
	}
	return room
}

// fly sends what waits and goes on with the calls of it, until nothing waits any more.
func (g *group) fly() {
	var f flight
	for g.next(&f) {
		f.run()
		f.end()
	}
}

// next takes what waits into a flight that has nothing, and reports false if it has to end.
func (g *group) next(f *flight) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.took > 0 {
		g.trip.note(f.ended, f.took)
	}
	if len(g.queue) == 0 || g.flying > g.roomLocked() {
		g.flying--
		return false
	}
	n := min(len(g.queue), maxParts)
	f.group, f.client = g, g.client
	f.parts = append(f.parts[:0], g.queue[:n]...)
	left := copy(g.queue, g.queue[n:])
	clear(g.queue[left:])
	g.queue = g.queue[:left]
	g.last = n
	return true
}

// flight is a pipeline with its parts.
type flight struct {
	group   *group
	client  commander
	parts   []*part
	scripts []script
	dirty   backend.Flushers
	// took is how long the pipeline took that ended last, and ended when that was.
	took  time.Duration
	ended time.Time
}

// script is one run of the script.
type script struct {
	parts []*part
	cmd   once
}

// run sends the parts, and has an answer or an error for each script then.
func (f *flight) run() {
	s := f.group.store
	f.dropStale(time.Now().Add(-s.timeout))
	f.pack()
	if len(f.scripts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	all := make([]*script, len(f.scripts))
	for i := range f.scripts {
		f.scripts[i].cmd = s.command(ctx, f.scripts[i].parts, false)
		all[i] = &f.scripts[i]
	}
	began := time.Now()
	f.exec(ctx, all)
	f.ended = time.Now()
	f.took = f.ended.Sub(began)
	unknown := all[:0]
	for _, sc := range all {
		if redis.HasErrorPrefix(sc.cmd.Err(), "NOSCRIPT") {
			sc.cmd = s.command(ctx, sc.parts, len(unknown) == 0) // the others come after the text
			unknown = append(unknown, sc)
		}
	}
	f.exec(ctx, unknown)
}

// exec sends scripts, each of which has an answer or an error of its own then.
func (f *flight) exec(ctx context.Context, scripts []*script) {
	switch len(scripts) {
	case 0:
	case 1:
		_ = f.client.Process(ctx, scripts[0].cmd)
	default:
		pipeline := f.client.Pipeline()
		for _, sc := range scripts {
			_ = pipeline.Process(ctx, sc.cmd)
		}
		_, _ = pipeline.Exec(ctx)
	}
}

// dropStale ends the parts that wait since before a time: nobody may still want them.
func (f *flight) dropStale(before time.Time) {
	kept := f.parts[:0]
	for _, p := range f.parts {
		if p.queued.Before(before) {
			f.finish(p, nil, context.DeadlineExceeded)
		} else {
			kept = append(kept, p)
		}
	}
	f.parts = kept
}

// pack deals the parts out to scripts.
func (f *flight) pack() {
	f.scripts = f.scripts[:0]
	first, keys := 0, 0
	for i, p := range f.parts {
		if i > first && (!f.group.merge || keys+len(p.keys) > maxKeys) {
			f.scripts = append(f.scripts, script{parts: f.parts[first:i]})
			first, keys = i, 0
		}
		keys += len(p.keys)
	}
	if first < len(f.parts) {
		f.scripts = append(f.scripts, script{parts: f.parts[first:]})
	}
}

// end goes on with the calls of all parts.
func (f *flight) end() {
	for i := range f.scripts {
		sc := &f.scripts[i]
		reply, err := sc.cmd.Bytes()
		if err == nil || !f.group.store.elsewhere(sc, err) {
			for _, p := range sc.parts {
				n := min(len(p.keys)*answerSize, len(reply))
				f.finish(p, reply[:n], err)
				reply = reply[n:]
			}
		}
		sc.cmd, sc.parts = once{}, nil
	}
	clear(f.parts)
	f.dirty.Flush()
}

func (f *flight) finish(p *part, reply []byte, err error) {
	f.dirty.Add(f.group.store.finish(p, reply, err))
}

// finish goes on with the call of a part. A panic there must not end the others.
func (s *Store) finish(p *part, reply []byte, err error) (dirty backend.Flusher) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("panic after a take", slog.String("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
		}
	}()
	return p.end(reply, err)
}
