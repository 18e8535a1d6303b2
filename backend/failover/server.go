package failover

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// servers are the breakers of the servers that were ever named: a snapshot, since there
// are few and new ones are rare.
type servers struct {
	mu    sync.Mutex // over changes of known
	known atomic.Pointer[map[string]*breaker]
}

// of gives a server's breaker.
func (s *servers) of(name string) *breaker {
	if known := s.known.Load(); known != nil {
		if b := (*known)[name]; b != nil {
			return b
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[string]*breaker{}
	if old := s.known.Load(); old != nil {
		if b := (*old)[name]; b != nil {
			return b
		}
		known = maps.Clone(*old)
	}
	b := &breaker{}
	known[name] = b
	s.known.Store(&known)
	return b
}

func (s *servers) all() map[string]*breaker {
	if known := s.known.Load(); known != nil {
		return *known
	}
	return nil
}

// away is the number of takes whose server's breaker is open.
func (s *Store) away(takes []backend.Take) (n int) {
	for i := range takes {
		if s.servers.of(s.o.Server(takes[i].Key)).open.Load() {
			n++
		}
	}
	return n
}

// Answered tells of a command that a server answered, or failed to, and how long that
// took. An error of the caller's own, a context that was canceled, counts as nothing.
func (s *Store) Answered(server string, took time.Duration, err error) {
	b, now := s.servers.of(server), time.Now()
	switch {
	case errors.Is(err, context.Canceled):
		return
	case err != nil || took > s.o.Slow:
		if err == nil {
			b.heard(now)
		}
		s.bad(b, server, now, err)
	default:
		b.heard(now)
		b.count(now, false)
	}
}

// silent counts a call that waited in vain, against those of its servers that have not
// said a word since it began: of the others, it can not tell.
func (s *Store) silent(takes []backend.Take, began time.Time) {
	seen := make([]*breaker, 0, 1)
next:
	for i := range takes {
		name := s.o.Server(takes[i].Key)
		b := s.servers.of(name)
		for _, other := range seen {
			if other == b {
				continue next
			}
		}
		seen = append(seen, b)
		if !b.heardSince(began) {
			s.bad(b, name, time.Now(), errLate)
		}
	}
}

func (s *Store) bad(b *breaker, server string, now time.Time, err error) {
	if !b.count(now, true) {
		return
	}
	if err == nil {
		err = errors.New("slow answers")
	}
	s.log.Warn("the store does not answer in time: calls are decided without it",
		slog.String("server", server), slog.String("reason", err.Error()))
}

// Breakers says of each server that was ever asked whether its breaker is open.
func (s *Store) Breakers() map[string]bool {
	open := map[string]bool{}
	for name, b := range s.servers.all() {
		open[name] = b.open.Load()
	}
	return open
}

// Open reports whether any breaker is open.
func (s *Store) Open() bool {
	for _, b := range s.servers.all() {
		if b.open.Load() {
			return true
		}
	}
	return false
}

// Run probes the servers whose breakers are open, and forgets local buckets that are full
// again, until ctx is done.
func (s *Store) Run(ctx context.Context) error {
	var probing sync.WaitGroup
	defer probing.Wait()
	for {
		if !pause(ctx, s.o.ProbeEvery) {
			return nil
		}
		s.local.sweep()
		if s.o.Probe == nil {
			continue
		}
		for name, b := range s.servers.all() {
			if b.open.Load() && b.probing.CompareAndSwap(false, true) {
				probing.Go(func() {
					s.probe(ctx, name, b)
					b.probing.Store(false)
				})
			}
		}
	}
}

// probes is how many good probes in a row close a breaker.
const probes = 2

// probe asks a server until its breaker may close, or ctx is done.
func (s *Store) probe(ctx context.Context, name string, b *breaker) {
	since := time.Now()
	for good := 0; good < probes; {
		try, cancel := context.WithTimeout(ctx, s.o.Linger)
		began := time.Now()
		err := s.o.Probe(try, name)
		cancel()
		if err == nil && time.Since(began) <= s.o.Slow {
			good++
		} else {
			good = 0
		}
		if good < probes && !pause(ctx, s.o.ProbeEvery) {
			return
		}
	}
	b.close()
	s.log.Info("the store answers again", slog.String("server", name), slog.Duration("after", time.Since(since)))
}

// pause waits for about d, off by up to a fifth, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(time.Duration(float64(d) * (0.8 + 0.4*rand.Float64())))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
