//go:build integration

package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// late is when a caller has waited too long: the budget of 5 ms, and as much for the rest.
const late = 10 * time.Millisecond

// seen is what callers saw.
type seen struct {
	calls, errors, late, hot int // hot: calls that passed of the hot key
	worst                    time.Duration
	took                     []time.Duration
	elapsed                  time.Duration
}

// percentile is the time within which so many of a thousand answers came.
func (s *seen) percentile(perMille int) time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	sorted := slices.Clone(s.took)
	slices.Sort(sorted)
	return sorted[min(len(sorted)*perMille/1000, len(sorted)-1)]
}

// load sends calls to instances at a steady rate, whether or not they are answered: half
// of them with the hot key, the others each with one of many.
type load struct {
	t         *testing.T
	instances []*instance
	began     time.Time
	stop      chan struct{}
	sending   sync.WaitGroup

	mu   sync.Mutex // guards seen
	seen seen
}

// startLoad sends so many calls a second to each instance.
func startLoad(t *testing.T, instances []*instance, perSecond int) *load {
	t.Helper()
	l := &load{t: t, instances: instances, began: time.Now(), stop: make(chan struct{})}
	for _, s := range instances {
		l.sending.Go(func() { l.send(s, time.Second/time.Duration(perSecond)) })
	}
	return l
}

func (l *load) send(s *instance, gap time.Duration) {
	tick := time.NewTicker(gap)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-l.stop:
			return
		}
		key := "hot"
		if n%2 == 1 {
			key = fmt.Sprint("cold", n%500)
		}
		l.sending.Go(func() { l.call(s, key) })
	}
}

func (l *load) call(s *instance, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), patience)
	defer cancel()
	began := time.Now()
	response, err := s.rls.ShouldRateLimit(ctx, request("hot", key))
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen.calls++
	l.seen.took = append(l.seen.took, took)
	l.seen.worst = max(l.seen.worst, took)
	if took > late {
		l.seen.late++
	}
	if err != nil {
		l.seen.errors++
	} else if key == "hot" && response.GetOverallCode() == rlsv3.RateLimitResponse_OK {
		l.seen.hot++
	}
}

// end stops the load and waits for its last answers.
func (l *load) end() seen {
	close(l.stop)
	l.sending.Wait()
	l.seen.elapsed = time.Since(l.began)
	return l.seen
}
