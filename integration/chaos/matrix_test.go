//go:build integration

package chaos

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"
)

const (
	// instances share the limits of a row.
	instances = 3
	// hotRate is the limit of the hot key, for all of them, and its burst.
	hotRate = 60.0
	// back is how soon after its return Redis has to decide again.
	back = 2 * time.Second
)

// row is what came of a fault.
type row struct {
	fault   string
	seen    seen
	control seen
	ideal   float64 // calls of the hot key that one bucket would have let pass
	// degrade and recover are the times from the fault until every instance decides without
	// Redis, and from its end until every one decides with it again; negative: never, as it
	// need not.
	degrade, recover time.Duration
}

// TestFaults runs the matrix and prints its table. A caller must get an answer in time
// whatever happens, and nobody a second bucket.
func TestFaults(t *testing.T) {
	var rows []row
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { rows = append(rows, f.run(t)) }) // a row that is skipped has no line
	}
	table := format(rows)
	t.Logf("\n%s", table)
	if *update && !t.Failed() {
		if err := write(table); err != nil {
			t.Error(err)
		}
	}
}

func (f *fault) run(t *testing.T) row {
	t.Helper()
	lasts, perSecond := 1500*time.Millisecond, 100
	if *long {
		lasts, perSecond = 6*time.Second, 200
	}
	s := f.stage(t)
	s.env["INSTANCES"] = strconv.Itoa(instances)
	all := make([]*instance, instances)
	for i := range all {
		all[i] = start(t, s.env)
	}
	control := start(t, nil)
	for _, one := range all {
		one.ready()
	}
	l := startLoad(t, all, control, perSecond)
	pause(lasts / 2)
	before := all[0].metric("go_goroutines")
	r := row{fault: f.name, degrade: -1, recover: -1}
	r.play(t, &s, all, lasts)
	pause(lasts / 2)
	l.end()
	r.seen, r.control = l.seen, l.calm
	r.ideal = hotRate * (1 + l.elapsed.Seconds())
	r.judge(t, &s)
	if after := all[0].metric("go_goroutines"); after > before+50 {
		t.Errorf("an instance has %v goroutines, and had %v before", after, before)
	}
	return r
}

// play lets the fault happen, and waits until the instances have noticed its begin and its
// end.
func (r *row) play(t *testing.T, s *scene, all []*instance, lasts time.Duration) {
	t.Helper()
	began := time.Now()
	s.begin()
	if !s.keeps {
		eventually(t, "an instance decides without Redis", func() error { return each(all, true) })
		r.degrade = time.Since(began)
	}
	if s.end != nil {
		pause(lasts - time.Since(began))
		s.end()
		began = time.Now()
	}
	if !s.keeps {
		eventually(t, "every instance decides with Redis again", func() error { return each(all, false) })
		r.recover = time.Since(began)
	}
}

// each says which instances are not as they should be: some degraded, or none.
func each(all []*instance, degraded bool) error {
	for i, one := range all {
		if one.degraded() == degraded && degraded {
			return nil // with a cluster, some instances may not have asked the dead server
		}
		if one.degraded() && !degraded {
			return fmt.Errorf("instance %d decides without Redis", i)
		}
	}
	if degraded {
		return errors.New("all decide with Redis")
	}
	return nil
}

// judge fails a row that breaks a promise.
func (r *row) judge(t *testing.T, s *scene) {
	t.Helper()
	if r.seen.errors > 0 || len(r.seen.calls) == 0 {
		t.Errorf("%d of %d calls had no answer", r.seen.errors, len(r.seen.calls))
	}
	if alone, most := r.seen.alone(&r.control), r.allowance(); float64(alone) > most {
		t.Errorf("%d of %d answers took longer than %v while those of the control did not, want %.0f at most: "+
			"p99.9 is %v and the control's %v", alone, len(r.seen.calls), late, most, r.seen.percentile(999), r.control.percentile(999))
	}
	// Until the last instance has noticed that Redis is back, the others have the whole limit
	// there and it has its share; what it lets through is paid later.
	most := 1.1*r.ideal + hotRate*max(r.recover.Seconds(), 0)
	if s.loses { // one bucket more, and what the instances let through before they knew
		most += 2 * hotRate
	}
	if hot := float64(r.seen.hot); hot > most || hot < 0.9*r.ideal {
		t.Errorf("%d calls of the hot key passed, want about %.0f", r.seen.hot, r.ideal)
	}
	if s.end != nil && r.recover > back {
		t.Errorf("Redis decided again %v after it was back, want %v at most", r.recover, back)
	}
}

// allowance is how many answers may be late that no call of the control explains. One in a
// thousand is the promise of a quiet machine. On a busy one a process can be kept waiting
// without the control's, so it is as much again as the control's share of slow answers,
// which is next to nothing where the machine is quiet.
func (r *row) allowance() float64 {
	n := float64(len(r.seen.calls))
	busy := float64(r.control.over(late-budget)) / float64(max(len(r.control.calls), 1))
	return 3 + n*(0.001+busy)
}

// pause lets the load go on.
func pause(d time.Duration) { <-time.After(d) }
