package redisstore

// SetClock gives the store's script the time, in microseconds since 1970, that now
// returns, in place of Redis' own.
func (s *Store) SetClock(now func() int64) { s.now = now }

// Slot is the hash slot of a key.
func Slot(key string) uint16 { return slot([]byte(key)) }
