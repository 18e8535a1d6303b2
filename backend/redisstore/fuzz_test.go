package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/redisstore"
	"github.com/sluice-rls/sluice/internal/proc"
)

// FuzzTake feeds the same calls to the arithmetic in Go, which is the specification, and
// to the script on a real Redis.
func FuzzTake(f *testing.F) {
	addr, _ := proc.Redis(f)
	for seed := range 8 {
		f.Add(noise(uint64(seed), 40))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := newDuel(t, addr, len(data) > 0 && data[0]%2 == 0)
		for len(data) >= stepSize {
			d.step(data[:stepSize])
			data = data[stepSize:]
		}
	})
}

// TestTakeAsInGo is FuzzTake with 100,000 calls that are the same each time, or a quarter of
// them with -short.
func TestTakeAsInGo(t *testing.T) {
	t.Parallel()
	addr, _ := proc.Redis(t)
	const steps = 200
	rounds := 500
	if testing.Short() {
		rounds = 125
	}
	taken, denied := 0, 0
	var granted, back [algorithms]uint64
	for seed := range rounds {
		d := newDuel(t, addr, seed%2 == 0)
		data := noise(uint64(seed)+1000, steps)
		for ; len(data) > 0 && !t.Failed(); data = data[stepSize:] {
			d.step(data[:stepSize])
		}
		taken, denied = taken+d.taken, denied+d.denied
		for i := range granted {
			granted[i] += d.granted[i]
			back[i] += d.back[i]
		}
	}
	if taken < rounds*steps/5 || denied < rounds*steps/5 {
		t.Errorf("%d takes charged, %d were not OK: the calls are too much alike to show anything", taken, denied)
	}
	for _, a := range []backend.Algorithm{backend.TokenBucket, backend.FixedWindow} {
		if n := uint64(rounds); granted[a] < n || back[a] < n {
			t.Errorf("algorithm %d: %d tokens leased, %d given back: the calls are too much alike to show anything", a, granted[a], back[a])
		}
	}
}

// noise is the input of so many random steps.
func noise(seed uint64, steps int) []byte {
	source := rand.New(rand.NewPCG(seed, 0))
	data := make([]byte, 0, steps*stepSize)
	for range steps * stepSize {
		data = append(data, byte(source.Uint32()))
	}
	return data
}

const (
	duelKeys   = 3
	algorithms = int(backend.SlidingLog) + 1
	// stepSize is the bytes of one call: 4 for the call, 16 for each of up to three takes.
	stepSize = 4 + 16*duelKeys
)

// duel is the same buckets twice: in Go, and in Redis.
type duel struct {
	*testing.T
	store  *redisstore.Store
	client *redis.Client
	prefix string
	now    int64
	bucket [duelKeys][algorithms]backend.Bucket
	limit  [duelKeys][algorithms]backend.Limit
	// calm duels stay within a few periods, so that buckets have a past.
	calm bool
	// taken and denied count the takes that charged, and that were not OK; granted and back
	// the tokens that went out on lease, and that were there again.
	taken, denied int
	granted, back [algorithms]uint64
}

func newDuel(t *testing.T, addr string, calm bool) *duel {
	t.Helper()
	prefix := fmt.Sprintf("duel-%d:", rand.Uint64())
	d := &duel{
		T: t, calm: calm, prefix: prefix, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(),
		store:  open(t, redisstore.Options{Addrs: []string{addr}, KeyPrefix: prefix, PoolSize: 1}),
		client: redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true, PoolSize: 1}),
	}
	t.Cleanup(func() { d.client.Close() }) //nolint:errcheck // the server goes with the test
	d.store.SetClock(func() int64 { return d.now })
	return d
}

// step makes the call that some bytes say.
func (d *duel) step(data []byte) {
	d.Helper()
	d.move(data[1], data[2])
	d.expire()
	var takes []backend.Take
	var buckets []*backend.Bucket
	for i := range duelKeys {
		if part := data[4+16*i : 4+16*(i+1)]; i == int(data[0])%duelKeys || data[3]>>i&1 == 1 {
			algorithm := int(part[13]) % algorithms
			take := takeOf(part, fmt.Appendf(nil, "k%d-%d", i, algorithm))
			take.Limit.Algorithm = backend.Algorithm(algorithm)
			if limit := &d.limit[i][algorithm]; limit.Requests == 0 || part[14]%8 == 0 {
				*limit = take.Limit
			}
			take.Limit = d.limit[i][algorithm]
			take.Hits = hitsOf(part, take.Limit)
			if take.Limit.Algorithm.Leases() && data[0]/duelKeys%2 == 0 {
				take.Lease = leaseOf(part, take.Limit, d.now)
			}
			takes = append(takes, take)
			buckets = append(buckets, &d.bucket[i][algorithm])
		}
	}
	if lease := takes[0].Lease; lease != nil && len(takes) == 1 && takes[0].Hits > 0 && takes[0].Give == 0 && takes[0].Overflow == backend.Reject {
		lease.Calls = uint64(data[1] % 5)
	}
	want, got := make([]backend.Decision, len(takes)), make([]backend.Decision, len(takes))
	expected := slices.Clone(takes)
	for i := range expected {
		if expected[i].Lease != nil {
			expected[i].Lease = new(*expected[i].Lease)
		}
	}
	back := d.returns(takes, buckets)
	backend.Settle(expected, buckets, d.now, want)
	if err := d.store.Take(d.Context(), takes, got); err != nil {
		d.Fatalf("Take(%+v): %v", takes, err)
	}
	for i := range want {
		w, g := want[i], got[i]
		if math.Abs(w.Level-g.Level) <= 1e-6 {
			g.Level = w.Level
		}
		if l := takes[i].Lease; l != nil {
			if *l != *expected[i].Lease {
				d.Errorf("take %d of %+v: Lua's lease %+v, want as in Go %+v", i, takes, *l, *expected[i].Lease)
			}
			d.granted[takes[i].Limit.Algorithm] += l.Granted
			d.back[takes[i].Limit.Algorithm] += back[i]
		}
		if w != g {
			d.Errorf("take %d of %+v: Lua %+v, want as in Go %+v", i, takes, g, w)
		}
		if most := takes[i].Limit.Capacity(); w.Level > most || w.Level < -most-1e-6 {
			d.Errorf("take %d of %+v: level %v is beyond the capacity", i, takes, w.Level)
		}
		if w.Charged > 0 {
			d.taken++
		}
		if !w.OK {
			d.denied++
		}
	}
}

// returns is the number of tokens by which leases raise the levels of buckets that are about to
// be asked.
func (d *duel) returns(takes []backend.Take, buckets []*backend.Bucket) []uint64 {
	back := make([]uint64, len(takes))
	for i := range takes {
		if takes[i].Lease == nil {
			continue
		}
		var level [2]backend.Decision
		for n := range level {
			lease, bucket := *takes[i].Lease, buckets[i].Clone()
			if lease.Want = 0; n == 0 {
				lease.Back = 0
			}
			look := backend.Take{Limit: takes[i].Limit, Lease: &lease}
			backend.Settle([]backend.Take{look}, []*backend.Bucket{bucket}, d.now, level[n:n+1])
		}
		back[i] = uint64(level[1].Level - level[0].Level)
	}
	return back
}

// move sets the clock on, sometimes back, by as much as makes a difference.
func (d *duel) move(kind, amount byte) {
	units := []time.Duration{
		0, 0, time.Microsecond, 100 * time.Microsecond, 10 * time.Millisecond, time.Second,
		time.Minute, time.Hour, 24 * time.Hour, -time.Millisecond, -time.Second, -time.Hour,
	}
	if d.calm {
		units = []time.Duration{
			0, 0, time.Microsecond, 100 * time.Microsecond, 10 * time.Millisecond, 100 * time.Millisecond,
			300 * time.Millisecond, time.Second, time.Minute, -time.Millisecond, -100 * time.Millisecond, -20 * time.Second,
		}
	}
	d.now += units[int(kind)%len(units)].Microseconds() * int64(amount) / 16
}

// expire drops in Redis the buckets whose time is over by the duel's clock: Redis only
// expires by its own.
func (d *duel) expire() {
	for i := range d.bucket {
		for algorithm := range d.bucket[i] {
			bucket := &d.bucket[i][algorithm]
			if at := bucket.Expires(); at == 0 || at > d.now {
				continue
			}
			if err := d.client.Del(d.Context(), fmt.Sprintf("%srl1:k%d-%d", d.prefix, i, algorithm)).Err(); err != nil {
				d.Fatal(err)
			}
			*bucket = backend.Bucket{} // also if the clock is set back
		}
	}
}

// takeOf makes a take of 16 bytes.
func takeOf(data []byte, key []byte) backend.Take {
	sizes := []uint64{1, 2, 10, 100, 1000, 1_000_000, 4_000_000_000, 4_294_967_295}
	periods := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour, 3 * time.Second}
	t := backend.Take{
		Key: key,
		Limit: backend.Limit{
			Requests: sizes[int(data[0])%len(sizes)],
			Period:   periods[int(data[1])%len(periods)],
			Burst:    sizes[int(data[2])%len(sizes)],
		},
		Mode:     backend.Mode(data[3] % 3),
		Overflow: backend.Overflow(data[4] % 3),
	}
	some := uint64(binary.LittleEndian.Uint32(data[5:]))
	switch data[9] % 4 { // mostly, the limit stays within the reach of the hits
	case 0, 1:
		t.Limit.Requests, t.Limit.Burst = 1+some%1000, 1+uint64(data[2])
	case 2:
		t.Limit.Requests, t.Limit.Burst = 1+some%6, 1+uint64(data[2])%6
	}
	switch data[11] % 8 {
	case 0:
		t.Give = 1 + some>>(data[12]%32)
	case 1:
		t.Give = 1 + uint64(data[12]%4)
	}
	return t
}

// leaseOf makes a lease of the same bytes: mostly of what can be, sometimes of what an
// instance that lost an answer believes.
func leaseOf(data []byte, limit backend.Limit, now int64) *backend.Lease {
	of := uint64(limit.Capacity())
	l := &backend.Lease{
		Want:       uint64(data[5]) * of / 200,
		Asked:      uint64(data[6]),
		Demand:     float64(data[7]) / 3,
		Fraction:   float64(data[8]%4) / 10,
		Scarce:     float64(data[15]%4) * float64(of) / 20,
		Generation: now/backend.LeaseLife.Microseconds() - int64(data[12]%3),
	}
	if limit.Algorithm == backend.FixedWindow { // in this window, mostly
		ago := []time.Duration{0, time.Microsecond, time.Second, 5 * time.Second, limit.Period}
		l.Generation = now - ago[int(data[12])%len(ago)].Microseconds()
	}
	l.Counted = uint64(data[11]) * of / 2000
	switch data[15] / 4 % 4 {
	case 0:
		l.Held = l.Counted / 2
	case 1:
		l.Back = l.Counted / 3
	case 2:
		l.Held, l.Back = l.Counted/2, l.Counted/3
	}
	return l
}

// hitsOf makes the hits of a take: often what there may be, sometimes far more.
func hitsOf(data []byte, limit backend.Limit) uint64 {
	some := uint64(binary.LittleEndian.Uint32(data[5:]))
	switch b := uint64(limit.Capacity()); data[10] % 12 {
	case 0:
		return 0
	case 1:
		return b
	case 2:
		return b + 1
	case 3:
		return some
	case 4:
		return 1 << (some % 64)
	default:
		return 1 + some%(b/3+1)
	}
}
