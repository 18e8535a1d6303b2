package prefetch

import (
	"cmp"
	"slices"
	"time"
)

// Lease is what this instance holds of a bucket at the moment.
type Lease struct {
	// Key is that of the bucket, without the store's prefix.
	Key string
	// Tokens may be spent without the store, for Life more.
	Tokens int64
	Life   time.Duration
	// Level is what the store told of the bucket last, with what came back since.
	Level float64
	// Rate is the hits per second that were asked for here.
	Rate float64
	// Pause is how long the instance stays away from a bucket that is nearly empty.
	Pause time.Duration
}

// Leases returns the leases with the most tokens, as many as most at most, and how many there
// are in all.
func (s *Store) Leases(most int) (leases []Lease, all int) {
	now := s.now()
	for _, e := range s.listed() {
		z := e.size.Load()
		e.mu.Lock()
		rate := e.rate
		e.mu.Unlock()
		leases = append(leases, Lease{
			Key: e.key, Tokens: e.tokens.Load(), Life: max(time.Duration(e.expires.Load()-now), 0),
			Level: e.estimate(z, now), Rate: rate, Pause: max(time.Duration(e.pause.Load()-now), 0),
		})
	}
	slices.SortFunc(leases, func(a, b Lease) int { return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.Key, b.Key)) })
	return leases[:min(most, len(leases))], len(leases)
}
