package rls

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Counters are striped, since a hot rule is counted on all processors at once: each
// stripe has cache lines of its own, and a call's scratch, which a pool keeps with a
// processor, counts on one of them. What is read is their sum.

// maxStripes bounds what a rule's counters take: 128 bytes a stripe.
const maxStripes = 8

// numStripes is a power of two, about the number of processors.
var numStripes = 1 << bits.Len(uint(min(maxStripes, runtime.GOMAXPROCS(0))-1))

// counters count what became of the descriptors of one label, in stripes.
type counters []stripe

func newCounters() counters { return make(counters, numStripes) }

type stripe struct {
	decisions [numReasons]atomic.Uint64
	asked     atomic.Uint64 // hits
	charged   atomic.Uint64 // hits
	near      atomic.Uint64 // hits
	_         [128 - 8*(numReasons+3)%128]byte
}

// of gives the stripe for a scratch with a number.
func (c counters) of(n uint32) *stripe { return &c[n&uint32(len(c)-1)] }

// latencies are a histogram, in stripes.
type latencies struct {
	desc    *prometheus.Desc
	stripes []latencyStripe
}

// latencyBounds are the upper bounds of the histogram's buckets.
var latencyBounds = [...]time.Duration{
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond,
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond,
	5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, time.Second,
}

type latencyStripe struct {
	counts [len(latencyBounds) + 1]atomic.Uint64
	nanos  atomic.Int64
}

func newLatencies(name, help string) *latencies {
	return &latencies{desc: prometheus.NewDesc(name, help, nil, nil), stripes: make([]latencyStripe, numStripes)}
}

func (l *latencies) observe(n uint32, took time.Duration) {
	s := &l.stripes[n&uint32(len(l.stripes)-1)]
	i := 0
	for i < len(latencyBounds) && took > latencyBounds[i] {
		i++
	}
	s.counts[i].Add(1)
	s.nanos.Add(int64(took))
}

// Describe is part of prometheus.Collector.
func (l *latencies) Describe(ch chan<- *prometheus.Desc) { ch <- l.desc }

// Collect is part of prometheus.Collector.
func (l *latencies) Collect(ch chan<- prometheus.Metric) {
	buckets := make(map[float64]uint64, len(latencyBounds))
	var count uint64
	var sum time.Duration
	for i := range len(latencyBounds) + 1 {
		for j := range l.stripes {
			count += l.stripes[j].counts[i].Load()
		}
		if i < len(latencyBounds) {
			buckets[latencyBounds[i].Seconds()] = count
		}
	}
	for j := range l.stripes {
		sum += time.Duration(l.stripes[j].nanos.Load())
	}
	ch <- prometheus.MustNewConstHistogram(l.desc, count, sum.Seconds(), buckets)
}
