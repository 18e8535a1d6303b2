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

const (
	// budget is how long a call may wait for Redis, the default of REDIS_BUDGET.
	budget = 5 * time.Millisecond
	// late is when a caller has waited too long: the budget, and as much for the rest.
	late = 2 * budget
)

// answered is one call: when it was sent, since the load began, and how long it took.
type answered struct{ sent, took time.Duration }

// meets reports whether two calls were under way at one time.
func (a answered) meets(b answered) bool {
	return a.sent < b.sent+b.took && b.sent < a.sent+a.took
}

// seen is what callers saw.
type seen struct {
	calls       []answered
	errors, hot int // hot: calls that passed of the hot key
}

// over is how many answers took longer than d.
func (s *seen) over(d time.Duration) (n int) {
	for _, c := range s.calls {
		if c.took > d {
			n++
		}
	}
	return n
}

// percentile is the time within which so many of a thousand answers came.
func (s *seen) percentile(perMille int) time.Duration {
	if len(s.calls) == 0 {
		return 0
	}
	took := make([]time.Duration, len(s.calls))
	for i, c := range s.calls {
		took[i] = c.took
	}
	slices.Sort(took)
	return took[min(len(took)*perMille/1000, len(took)-1)]
}

// alone is how many answers were late while none of the control's was slow: those that the
// machine does not explain. Slow is half of late, since the control has no budget to spend.
func (s *seen) alone(control *seen) (n int) {
	var slow []answered
	for _, c := range control.calls {
		if c.took > late-budget {
			slow = append(slow, c)
		}
	}
	for _, c := range s.calls {
		if c.took > late && !slices.ContainsFunc(slow, c.meets) {
			n++
		}
	}
	return n
}

// load sends calls to instances at a steady rate, whether or not they are answered: half
// of them with the hot key, the others each with one of many. With each it sends the same
// to a control, an instance that has its buckets in its own memory: what makes that one
// slow is the machine, or this client.
type load struct {
	t       *testing.T
	control *instance // nil: none
	began   time.Time
	stop    chan struct{}
	sending sync.WaitGroup

	mu         sync.Mutex // guards the rest
	seen, calm seen       // of the instances, and of the control
	elapsed    time.Duration
}

// startLoad sends so many calls a second to each instance, and as many to the control if
// there is one.
func startLoad(t *testing.T, instances []*instance, control *instance, perSecond int) *load {
	t.Helper()
	l := &load{t: t, control: control, began: time.Now(), stop: make(chan struct{})}
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
		l.sending.Go(func() { l.call(s, key, &l.seen) })
		if l.control != nil {
			l.sending.Go(func() { l.call(l.control, key, &l.calm) })
		}
	}
}

func (l *load) call(s *instance, key string, to *seen) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), patience)
	defer cancel()
	began := time.Now()
	response, err := s.rls.ShouldRateLimit(ctx, request("hot", key))
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	to.calls = append(to.calls, answered{began.Sub(l.began), took})
	if err != nil {
		to.errors++
	} else if key == "hot" && response.GetOverallCode() == rlsv3.RateLimitResponse_OK {
		to.hot++
	}
}

// end stops the load and waits for its last answers. The instances' are in seen then, and
// the control's in calm.
func (l *load) end() {
	close(l.stop)
	l.sending.Wait()
	l.elapsed = time.Since(l.began)
}
