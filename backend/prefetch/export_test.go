package prefetch

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
