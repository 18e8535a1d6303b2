package failover_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/failover"
)

func instances(n int) func() int { return func() int { return n } }

// passed is how many of n calls of one key pass.
func passed(t *testing.T, s backend.Store, limit backend.Limit, n int) (ok uint64) {
	t.Helper()
	for range n {
		if one(t, s, "k", limit, 1).OK {
			ok++
		}
	}
	return ok
}

func TestTheLocalShareOfALimit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit backend.Limit
		n     int
		burst uint64 // that passes at once
		later uint64 // that passes after two periods of the limit
	}{
		{"alone", backend.Limit{Requests: 60, Period: time.Minute, Burst: 60}, 1, 60, 60},
		{"three", backend.Limit{Requests: 60, Period: time.Minute, Burst: 60}, 3, 20, 20},
		{"the rate keeps its fractions", backend.Limit{Requests: 10, Period: time.Minute, Burst: 100}, 4, 25, 5},
		{"a burst apart", backend.Limit{Requests: 60, Period: time.Minute, Burst: 6}, 3, 2, 2},
		{"one token at least", backend.Limit{Requests: 1, Period: time.Minute, Burst: 1}, 20, 1, 0},
		{"a fixed window", backend.Limit{Algorithm: backend.FixedWindow, Requests: 60, Period: time.Minute, Burst: 60}, 3, 20, 20},
		{"a sliding log", backend.Limit{Algorithm: backend.SlidingLog, Requests: 2, Period: time.Minute, Burst: 2}, 3, 1, 1},
		{"a period that cannot be multiplied", backend.Limit{Requests: 200, Period: backend.MaxIdle, Burst: 200}, 2, 100, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFault()
				inner.set(0, errors.New("away"))
				s := failover.New(inner, failover.Options{Instances: instances(tt.n)})
				defer s.Close()
				if n := passed(t, s, tt.limit, 200); n != tt.burst {
					t.Errorf("%d pass at once, want %d", n, tt.burst)
				}
				time.Sleep(2 * tt.limit.Period)
				if n := passed(t, s, tt.limit, 200); n != tt.later {
					t.Errorf("%d pass after two periods, want %d", n, tt.later)
				}
			})
		})
	}
}

// Instances that know which of them they are share a burst to the last token, and those that
// do not share no more than it.
func TestSharesOfABurstThatDoesNotDivide(t *testing.T) {
	for _, tt := range []struct {
		algorithm    backend.Algorithm
		tokens       uint64
		n            int
		known, blind uint64 // that pass of all instances
	}{
		{backend.TokenBucket, 100, 3, 100, 99},
		{backend.TokenBucket, 10, 3, 10, 9},
		{backend.TokenBucket, 5, 3, 5, 3},
		{backend.TokenBucket, 11, 4, 11, 8},
		{backend.TokenBucket, 2, 3, 3, 3}, // one token each at least
		{backend.FixedWindow, 10, 3, 10, 9},
		{backend.SlidingLog, 8, 3, 8, 6},
		{backend.LeakyBucket, 10, 4, 10, 8},
	} {
		limit := perDay(tt.tokens)
		limit.Algorithm = tt.algorithm
		all := func(rank func(i int) int) (n uint64) {
			for i := range tt.n {
				inner := newFault()
				inner.set(0, errors.New("away"))
				s := failover.New(inner, failover.Options{Instances: instances(tt.n)})
				s.SetRank(rank(i))
				n += passed(t, s, limit, 200)
				s.Close()
			}
			return n
		}
		if n := all(func(i int) int { return i }); n != tt.known {
			t.Errorf("algorithm %d: %d of %d pass on %d instances that know their rank, want %d", tt.algorithm, n, tt.tokens, tt.n, tt.known)
		}
		if n := all(func(int) int { return -1 }); n != tt.blind {
			t.Errorf("algorithm %d: %d of %d pass on %d instances, want %d", tt.algorithm, n, tt.tokens, tt.n, tt.blind)
		}
	}
}

// Logs grow with what is taken, and are bounded with all that is kept.
func TestTheBoundOfLocalLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFault()
		inner.set(0, errors.New("away"))
		s := failover.New(inner, failover.Options{MaxBuckets: 100})
		defer s.Close()
		limit := perDay(1000)
		limit.Algorithm = backend.SlidingLog
		for client := range 10 {
			key := strconv.Itoa(client)
			for range 1000 {
				time.Sleep(time.Microsecond) // a token each, an entry each
				if !one(t, s, key, limit, 1).OK {
					t.Fatalf("client %s is denied below its limit", key)
				}
			}
			if one(t, s, key, limit, 1).OK {
				t.Errorf("client %s has more than its limit", key)
			}
		}
		if n := s.LocalBuckets(); n < 1 || n > 2 {
			t.Errorf("%d logs of a thousand tokens are kept, want no more than take the memory of a hundred buckets", n)
		}
		if s.Evicted() == 0 {
			t.Error("none is counted as evicted")
		}
	})
}

// outage puts s into an outage of its store and returns what ends it.
func outage(t *testing.T, s *failover.Store, inner *fault) (end func()) {
	t.Helper()
	inner.set(0, errors.New("away"))
	for !s.Open() {
		one(t, s, "other", perDay(1), 1)
		time.Sleep(10 * ms)
	}
	return func() {
		inner.set(0, nil)
		for s.Open() {
			time.Sleep(10 * ms)
		}
	}
}

// Who was denied before the outage is denied in it, and after it.
func TestNoDenialIsLost(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		before, during, after int // calls, of a limit of 90 a day over three instances
		wantDuring, wantAfter uint64
	}{
		{"denied before", 100, 100, 100, 0, 0},
		{"half used", 45, 100, 100, 15, 30},
		{"never seen", 0, 100, 100, 30, 60},
		{"not used meanwhile", 45, 0, 100, 0, 45},
		{"used a little meanwhile", 0, 10, 100, 10, 80},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFault()
				s := run(t, inner, failover.Options{Probe: inner.probe, Instances: instances(3)})
				passed(t, s, perDay(90), tt.before)
				end := outage(t, s, inner)
				if n := passed(t, s, perDay(90), tt.during); n != tt.wantDuring {
					t.Errorf("%d pass during the outage, want %d", n, tt.wantDuring)
				}
				end()
				if n := passed(t, s, perDay(90), tt.after); n != tt.wantAfter {
					t.Errorf("%d pass after the outage, want %d", n, tt.wantAfter)
				}
				if n := s.LocalBuckets(); n > 1 { // that of outage's own key
					t.Errorf("%d local buckets are left", n)
				}
			})
		})
	}
}

// Very many clients that come once do not make the store's answer forgotten for those who
// were denied.
func TestADenialIsRememberedAmongManyClients(t *testing.T) {
	inner := newFault()
	s := failover.New(inner, failover.Options{Budget: time.Minute, Instances: instances(3)})
	defer s.Close()
	const denied = 100
	for i := range denied {
		one(t, s, fmt.Sprint("denied", i), perDay(100), 100)
	}
	takes := make([]backend.Take, 100)
	for first := 0; first < 150_000; first += len(takes) {
		for i := range takes {
			takes[i] = backend.Take{Key: fmt.Appendf(nil, "{once%d}", first+i), Limit: perDay(100), Hits: 1}
		}
		if err := s.Take(t.Context(), takes, make([]backend.Decision, len(takes))); err != nil {
			t.Fatal(err)
		}
	}
	inner.set(0, errors.New("away"))
	for i := range denied {
		if one(t, s, fmt.Sprint("denied", i), perDay(100), 1).OK {
			t.Errorf("client %d passes in the outage, and was denied before", i)
		}
	}
}

// A store that comes back empty finds out what was let through as well.
func TestTheStoreComesBackEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFault()
		s := run(t, inner, failover.Options{Probe: inner.probe})
		end := outage(t, s, inner)
		if n := passed(t, s, perDay(10), 20); n != 10 {
			t.Errorf("%d pass during the outage, want 10", n)
		}
		inner.Store = newFault().Store
		end()
		if n := passed(t, s, perDay(10), 20); n != 0 {
			t.Errorf("%d pass after the outage, want none", n)
		}
	})
}

// What has come back during a long outage, the store's bucket has as well.
func TestALongOutageOwesNoMoreThanABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFault()
		s := run(t, inner, failover.Options{Probe: inner.probe})
		limit := perSecond(10, 10)
		end := outage(t, s, inner)
		for range 100 {
			passed(t, s, limit, 20)
			time.Sleep(time.Second)
		}
		end()
		d := one(t, s, "k", limit, 0)
		if d.Source != backend.Bucketed || d.Remaining() != 10 {
			t.Errorf("decision = %+v, want a full bucket: the last second gave all back", d)
		}
	})
}

// A late answer counts: what it charged is not charged again, and goes back if the call was
// denied meanwhile.
func TestALateAnswerSettles(t *testing.T) {
	f := func(name string, rule backend.OnFailure, wantLeft uint64) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFault()
				s := run(t, inner, failover.Options{Probe: inner.probe})
				inner.set(20*ms, nil)
				for range 3 {
					var d [1]backend.Decision
					take := []backend.Take{{Key: []byte("k"), Limit: perDay(10), Hits: 1, OnFailure: rule}}
					if err := s.Take(t.Context(), take, d[:]); err != nil || d[0].Source == backend.Bucketed {
						t.Fatalf("decision = %+v, %v, want one without the store", d[0], err)
					}
				}
				inner.set(0, nil)
				time.Sleep(time.Second)
				if d := one(t, s, "k", perDay(10), 0); d.Source != backend.Bucketed || d.Remaining() != wantLeft {
					t.Errorf("decision = %+v, want %d left", d, wantLeft)
				}
			})
		})
	}
	f("let through here", backend.FailLocal, 7)
	f("allowed", backend.FailAllow, 7)
	f("denied here", backend.FailDeny, 10)
}

func TestLocalBucketsHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFault()
		s := run(t, inner, failover.Options{MaxBuckets: 100})
		inner.set(0, errors.New("away"))
		for i := range 1000 {
			one(t, s, fmt.Sprint("k", i), perSecond(10, 10), 1)
		}
		if n, evicted := s.LocalBuckets(), s.Evicted(); n != 100 || evicted != 900 {
			t.Errorf("%d local buckets and %d evicted, want 100 and 900", n, evicted)
		}
		time.Sleep(10 * time.Second)
		if n := s.LocalBuckets(); n != 0 {
			t.Errorf("%d local buckets once all are full again, want none", n)
		}
	})
}

// An account of leases is the store's to write, and it may do so when the caller has left.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFault()
		s := run(t, inner, failover.Options{})
		ask := func() (*backend.Lease, backend.Decision) {
			t.Helper()
			lease := &backend.Lease{Want: 100, Fraction: 1, Calls: 3}
			var d [1]backend.Decision
			take := backend.Take{Key: []byte("k"), Limit: perDay(1000), Hits: 2, Lease: lease}
			if err := s.Take(t.Context(), []backend.Take{take}, d[:]); err != nil {
				t.Fatal(err)
			}
			return lease, d[0]
		}
		lease, d := ask()
		if lease.Granted == 0 || d.Charged != 6 {
			t.Errorf("lease = %+v, decision = %+v, want that some are granted and three calls charged", lease, d)
		}
		inner.set(20*ms, nil)
		late, d := ask()
		if late.Granted != 0 || d.Source != backend.LocalShare || d.Charged != 2 {
			t.Errorf("lease = %+v, decision = %+v, want none and one call", late, d)
		}
		inner.set(0, nil)
		time.Sleep(100 * ms)
		if late.Granted != 0 {
			t.Errorf("a late answer changed the lease to %+v", late)
		}
	})
}
