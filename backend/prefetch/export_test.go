package prefetch

import "github.com/sluice-rls/sluice/backend"

// SetClock makes a test's clock that of the store.
func (s *Store) SetClock(nanos func() int64) { s.clock = nanos }

// Held is the number of tokens that the store holds.
func (s *Store) Held() (tokens int64) {
	for _, e := range s.listed() {
		tokens += e.tokens.Load()
	}
	return tokens
}

// Entries is the number of keys that the store knows.
func (s *Store) Entries() int { return int(s.table.count.Load()) }

// Moved is the number of tokens that came ahead of use, and that went back.
func (s *Store) Moved() (granted, returned uint64) { return s.granted.Load(), s.returned.Load() }

// Counts are what the metrics have.
func (s *Store) Counts() (asks, saved, denied, waits uint64) {
	for _, e := range s.listed() {
		s.flush(e)
	}
	return s.asks.Load(), s.saved.Load(), s.denials.Load(), s.waits.Load()
}

// SlowTake is a charge of a key that the store knows, with a pause after its hits were taken from
// the lease. It reports whether it passed.
func (s *Store) SlowTake(t backend.Take, pause func()) bool {
	e, _ := s.table.find(t.Key)
	l, hits := e.lease(), int64(t.Hits)
	left := e.tokens.Add(-hits)
	pause()
	var d backend.Decision
	return left >= 0 && s.spend(e, e.size.Load(), l, hits, left, &d) == within
}
