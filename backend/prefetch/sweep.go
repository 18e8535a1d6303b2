package prefetch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// tick is the time between two looks at the leases.
	tick = 25 * time.Millisecond
	// parts is the number of ticks in which all entries are looked at.
	parts = 200
	// idle is how long an entry is kept that nobody asks for: longer than a bucket counts
	// what was held. One that is asked for too seldom for a lease is kept no longer than
	// what the store said of its level.
	idle = 10 * time.Second
)

// Run gives back what is not used, and drops entries that nobody asks for, until ctx is
// done. Then it gives all leases back, for which it takes half a second at most; calls go
// to the store as they are from then on.
func (s *Store) Run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for n := 0; ; n = (n + 1) % parts {
		select {
		case <-ticker.C:
			s.returnIdle()
			s.table.sweep(n, parts, s.drop)
		case <-ctx.Done():
			s.end()
			return nil
		}
	}
}

// returnIdle gives back tokens whose time is over, and those of a window that are not used.
func (s *Store) returnIdle() {
	now := s.now()
	for _, e := range s.listed() {
		if now >= e.expires.Load() && !s.void(e) || e.idles(now) {
			s.cool(e)
		}
	}
}

// listed returns the entries that have or owe tokens. Those that do not any more leave the
// list.
func (s *Store) listed() []*entry {
	s.leases.walk.Lock()
	defer s.leases.walk.Unlock()
	s.leases.mu.Lock()
	list := s.leases.list
	s.leases.list = nil
	s.leases.mu.Unlock()
	kept := make([]*entry, 0, len(list))
	for _, e := range list {
		e.mu.Lock()
		if e.listed = e.tokens.Load() > 0 || e.owed > 0; e.listed {
			kept = append(kept, e)
		} else {
			s.flush(e)
		}
		e.mu.Unlock()
	}
	s.leases.mu.Lock()
	s.leases.list = append(s.leases.list, kept...)
	s.leases.mu.Unlock()
	return kept
}

// listLocked puts an entry on the list of leases.
func (s *Store) listLocked(e *entry) {
	if e.listed {
		return
	}
	e.listed = true
	s.leases.mu.Lock()
	s.leases.list = append(s.leases.list, e)
	s.leases.mu.Unlock()
}

// cool gives all tokens of an entry back.
func (s *Store) cool(e *entry) {
	if e.busy.CompareAndSwap(false, true) {
		s.fly(e, true)
	}
}

// drop reports whether an entry may leave the table, and sees to it that it gets no lease
// any more.
func (s *Store) drop(e *entry) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := s.now()
	asked, told := now-e.last, now-e.told.Load()
	old := asked > int64(idle) && told > int64(idle)
	slow := !e.hotLocked(e.size.Load()) && e.counted == 0 && told > int64(memory)
	e.dropped = (old || slow) && !e.busy.Load() && !e.listed && len(e.waiters) == 0
	if e.dropped {
		s.flush(e)
	}
	return e.dropped
}

// end gives all leases back, once the asks that are under way are done.
func (s *Store) end() {
	s.flights.end()
	for _, e := range s.listed() {
		if e.busy.CompareAndSwap(false, true) {
			s.flights.running.Add(1)
			s.ask(e, true)
		}
	}
	s.flights.running.Wait()
}

// flights are the asks under way.
type flights struct {
	mu      sync.RWMutex // over ended, and the beginning of an ask before that
	ended   atomic.Bool
	running sync.WaitGroup
}

// begin counts an ask; false if none may begin any more.
func (f *flights) begin() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.ended.Load() {
		return false
	}
	f.running.Add(1)
	return true
}

// done is the end of an ask that has begun.
func (f *flights) done() { f.running.Done() }

// end waits for the asks, after which none begins.
func (f *flights) end() {
	f.mu.Lock()
	f.ended.Store(true)
	f.mu.Unlock()
	f.running.Wait()
}
