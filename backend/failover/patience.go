package failover

import (
	"sync"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// patience has the jobs that somebody waits for, in the order of the times at which they
// leave. Nearly all have the same budget, so the last to come is the last to leave; one
// timer is enough for all of them, and it runs only while there are some.
type patience struct {
	// leave is called for each job whose time is over. running counts it until it is done.
	leave   func(*job) backend.Flusher
	running *sync.WaitGroup

	mu          sync.Mutex // guards the rest, and the places of the jobs in the list
	first, last *job
	timer       *time.Timer
	due         time.Time // of the timer; zero: it is not set
}

// add puts a job where it belongs.
func (p *patience) add(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	after := p.last
	for after != nil && after.until.After(j.until) {
		after = after.before
	}
	j.before = after
	if after == nil {
		j.after, p.first = p.first, j
	} else {
		j.after, after.after = after.after, j
	}
	if j.after == nil {
		p.last = j
	} else {
		j.after.before = j
	}
	if p.due.IsZero() || j.until.Before(p.due) {
		p.setLocked(j.until)
	}
}

// remove takes a job out, if it is still there.
func (p *patience) remove(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(j)
}

func (p *patience) removeLocked(j *job) {
	switch {
	case j.before != nil:
		j.before.after = j.after
	case p.first == j:
		p.first = j.after
	default:
		return
	}
	if j.after != nil {
		j.after.before = j.before
	} else {
		p.last = j.before
	}
	j.before, j.after = nil, nil
}

func (p *patience) setLocked(due time.Time) {
	p.due = due
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(due), p.expire)
	} else {
		p.timer.Reset(time.Until(due))
	}
}

// expire makes all leave whose time is over.
func (p *patience) expire() {
	var over []*job
	p.mu.Lock()
	now := time.Now()
	for p.first != nil && !p.first.until.After(now) {
		j := p.first
		p.removeLocked(j)
		// The answer may come at the same moment. If it is first, the job may be another call's
		// as soon as the lock is free: whoever answers has to take it once more.
		if j.state.CompareAndSwap(waiting, left) {
			p.running.Add(1) // the job itself is counted still
			over = append(over, j)
		}
	}
	p.due = time.Time{}
	if p.first != nil {
		p.setLocked(p.first.until)
	}
	p.mu.Unlock()
	var dirty backend.Flushers
	for _, j := range over {
		dirty.Add(p.leave(j))
	}
	dirty.Flush()
}

// close stops the timer.
func (p *patience) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
}
