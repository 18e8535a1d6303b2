// Package storetest is the suite that every backend.Store passes: timelines of takes and
// what each must answer. A behaviour that only one store shows is a bug of that store, or
// a line that is missing here.
//
// R and a number is the id of a fault that users of such services reported.
package storetest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-rls/sluice/backend"
)

// Open returns an empty store for one test, and a function that moves the store's clock
// on, or back if it is given less than zero. The clock stands still otherwise.
type Open func(t *testing.T) (store backend.Store, advance func(time.Duration))

// Run runs the suite.
func Run(t *testing.T, open Open) {
	t.Helper()
	groups := [][]test{bucketTests, limitTests, debtTests, leakyTests, largeTests, fixedTests, slidingTests, logTests, edgeTests, mixedTests, oddTests, leaseTests}
	for _, test := range slices.Concat(groups...) {
		t.Run(test.name, func(t *testing.T) { test.run(newBench(t, open)) })
	}
	for algorithm, name := range algorithmNames {
		for _, test := range callTests {
			t.Run(name+": "+test.name, func(t *testing.T) {
				b := newBench(t, open)
				b.algorithm = backend.Algorithm(algorithm)
				test.run(b)
			})
		}
		t.Run(name+": parallel takes", func(t *testing.T) { parallel(t, open, backend.Algorithm(algorithm)) })
	}
}

var algorithmNames = []string{"token bucket", "leaky bucket", "fixed window", "sliding window", "sliding log"}

// test is one test of the suite. Its name says the rule.
type test struct {
	name string
	run  func(*bench)
}

// bench is a store in one test.
type bench struct {
	*testing.T
	store   backend.Store
	advance func(time.Duration)
	at      time.Duration // since the start of the test

	// algorithm is that of all limits of call and take, if not zero. Times are not compared
	// then: they are those of a token bucket.
	algorithm backend.Algorithm
}

func newBench(t *testing.T, open Open) *bench {
	t.Helper()
	store, advance := open(t)
	return &bench{T: t, store: store, advance: advance}
}

// clock moves the store's clock to an offset from the start of the test.
func (b *bench) clock(at time.Duration) {
	b.advance(at - b.at)
	b.at = at
}

// take is one call.
func (b *bench) take(takes ...backend.Take) []backend.Decision {
	b.Helper()
	if b.algorithm != 0 {
		for i := range takes {
			takes[i].Limit.Algorithm = b.algorithm
		}
	}
	got := make([]backend.Decision, len(takes))
	if err := b.store.Take(b.Context(), takes, got); err != nil {
		b.Fatalf("at %v: Take(%s): %v", b.at, show(takes), err)
	}
	return got
}

// call is one call and its answer.
func (b *bench) call(takes []backend.Take, want ...backend.Decision) {
	b.Helper()
	equal := nearly
	if b.algorithm != 0 {
		equal = slices.Concat(nearly, cmp.Options{cmpopts.IgnoreFields(backend.Decision{}, "Wait", "Full")})
	}
	if diff := cmp.Diff(want, b.take(takes...), equal); diff != "" {
		b.Errorf("at %v: Take(%s): (-want +got)\n%s", b.at, show(takes), diff)
	}
}

// nearly lets levels differ by a millionth of a token, and times by a billionth: waits are
// to within half of backend.Epsilon of the token asked for.
var nearly = cmp.Options{
	cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-6 }),
	cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= max(a, b)/1e9/1000*1000 }),
}

func show(takes []backend.Take) string {
	var text strings.Builder
	for _, t := range takes {
		fmt.Fprintf(&text, "{%.40q hits %d give %d mode %d overflow %d of algorithm %d %d/%v burst %d}",
			t.Key, t.Hits, t.Give, t.Mode, t.Overflow, t.Limit.Algorithm, t.Limit.Requests, t.Limit.Period, t.Limit.Burst)
	}
	return text.String()
}

// step is one take of a bucket in its timeline, and its answer.
type step struct {
	at       time.Duration // from the start
	hits     uint64
	give     uint64
	overflow backend.Overflow

	ok    bool
	level float64
	wait  time.Duration
}

// timeline plays steps against the bucket of a key.
func (b *bench) timeline(key string, limit backend.Limit, steps ...step) {
	b.Helper()
	for i, s := range steps {
		b.clock(s.at)
		got := b.take(backend.Take{Key: []byte(key), Limit: limit, Hits: s.hits, Give: s.give, Overflow: s.overflow})[0]
		if got.OK != s.ok || !cmp.Equal(got.Level, s.level, nearly) || !cmp.Equal(got.Wait, s.wait, nearly) {
			b.Errorf("step %d at %v: hits %d give %d of %s: OK %v level %v wait %v, want OK %v level %v wait %v",
				i, s.at, s.hits, s.give, show([]backend.Take{{Limit: limit}}), got.OK, got.Level, got.Wait, s.ok, s.level, s.wait)
		}
	}
}

// tokens is a token bucket of so many tokens per period, all of which it can hold.
func tokens(requests uint64, period time.Duration) backend.Limit {
	return backend.Limit{Requests: requests, Period: period, Burst: requests}
}

// by is a limit by another algorithm.
func by(a backend.Algorithm, l backend.Limit) backend.Limit {
	l.Algorithm = a
	return l
}

// burst is a limit with another capacity.
func burst(l backend.Limit, capacity uint64) backend.Limit {
	l.Burst = capacity
	return l
}

const (
	s    = time.Second
	hour = time.Hour
	day  = 24 * time.Hour
	year = 365 * day
)
