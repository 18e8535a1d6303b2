package redisstore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/backend"
)

// distant is a server that answers everything after some time.
type distant struct {
	lasts time.Duration

	mu    sync.Mutex // guards the rest
	trips int
	most  int // of scripts in a trip
}

// Process is part of commander.
func (d *distant) Process(_ context.Context, cmd redis.Cmder) error {
	d.answer([]redis.Cmder{cmd})
	return nil
}

// Pipeline is part of commander.
func (d *distant) Pipeline() redis.Pipeliner { return &pipe{distant: d} }

func (d *distant) answer(cmds []redis.Cmder) {
	d.mu.Lock()
	d.trips++
	d.most = max(d.most, len(cmds))
	d.mu.Unlock()
	time.Sleep(d.lasts)
	for _, cmd := range cmds {
		if c, ok := cmd.(once); ok {
			keys, _ := c.Args()[2].(int)
			c.SetVal(string(make([]byte, keys*answerSize)))
		}
	}
}

// pipe is a pipeline to it, as far as a group uses one.
type pipe struct {
	redis.Pipeliner
	distant *distant
	cmds    []redis.Cmder
}

func (p *pipe) Process(_ context.Context, cmd redis.Cmder) error {
	p.cmds = append(p.cmds, cmd)
	return nil
}

func (p *pipe) Exec(context.Context) ([]redis.Cmder, error) {
	p.distant.answer(p.cmds)
	return p.cmds, nil
}

// when is a continuation that says when it is told.
type when chan time.Time

func (w when) Done(error) backend.Flusher {
	w <- time.Now()
	return nil
}

// What is asked of a server that is far away hardly waits for others, and what is asked of one
// that is near gathers.
func TestFlightsFollowTheDistance(t *testing.T) {
	f := func(lasts, gap, most time.Duration, trips int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			s, err := New(Options{Addrs: []string{"127.0.0.1:1"}})
			if err != nil {
				t.Fatal(err)
			}
			server := &distant{lasts: lasts}
			s.group.client = server
			const calls = 4000
			take := []backend.Take{{Key: []byte("k"), Limit: backend.Limit{Requests: 1, Burst: 1, Period: time.Second}, Hits: 1}}
			worst, asked := time.Duration(0), sync.WaitGroup{}
			var mu sync.Mutex
			for n := range calls {
				began, told := time.Now(), make(when, 1)
				s.Start(time.Time{}, take, make([]backend.Decision, 1), told)
				asked.Go(func() {
					took := (<-told).Sub(began)
					mu.Lock()
					defer mu.Unlock()
					if n > 100 { // else the distance is not known yet
						worst = max(worst, took)
					}
				})
				time.Sleep(gap)
			}
			asked.Wait()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if worst > most || server.trips > trips {
				t.Errorf("%v away: %v at worst and %d round trips for %d calls, want %v and %d at most", lasts, worst, server.trips, calls, most, trips)
			}
		})
	}
	const µs = time.Microsecond
	f(100*µs, 250*µs, 100*µs, 4000)
	f(200*µs, 10*µs, 500*µs, 500)
	f(2000*µs, 250*µs, 2500*µs, 4000)
	f(4000*µs, 250*µs, 4500*µs, 4000)
}
