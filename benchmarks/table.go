package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// table collects the results of a case.
type table struct {
	loadCase
	names   []string // of variants, in the order in which they came
	results map[string][]result
}

func newTable(c loadCase) *table {
	return &table{loadCase: c, results: make(map[string][]result)}
}

func (t *table) add(name string, r result) {
	if !slices.Contains(t.names, name) {
		t.names = append(t.names, name)
	}
	t.results[name] = append(t.results[name], r)
}

// print writes a row for each variant: medians over the rounds.
func (t *table) print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "\n%s\n", t.name)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "variant\tµs CPU/call\tmin–max\t× echo\tof it Redis\tcalls/s\tdenied\tp50 µs\tp99 µs\tp99.9 µs\tMiB\t")
	for _, name := range t.names {
		rs := t.results[name]
		of := func(f func(i int) float64) (median, least, most float64) {
			values := make([]float64, len(rs))
			for i := range rs {
				values[i] = f(i)
			}
			slices.Sort(values)
			return values[len(values)/2], values[0], values[len(values)-1]
		}
		cpu, least, most := of(func(i int) float64 { return rs[i].cpuMicros() })
		ratio, _, _ := of(func(i int) float64 { return rs[i].cpuMicros() / t.results["echo"][i].cpuMicros() })
		redis, _, _ := of(func(i int) float64 { return float64(rs[i].redis.Microseconds()) / float64(rs[i].calls) })
		rps, _, _ := of(func(i int) float64 { return float64(rs[i].calls) / rs[i].elapsed.Seconds() })
		denied, _, _ := of(func(i int) float64 { return 100 * float64(rs[i].denied) / float64(rs[i].calls) })
		memory, _, _ := of(func(i int) float64 { return float64(rs[i].memory) / (1 << 20) })
		_, _ = fmt.Fprintf(tw, "%s\t%.1f\t%.1f–%.1f\t%.2f\t%.1f\t%.0f\t%.0f %%\t", name, cpu, least, most, ratio, redis, rps, denied)
		for _, q := range []float64{50, 99, 99.9} {
			if t.rate == 0 { // latency of a loop that waits for itself says nothing
				_, _ = fmt.Fprint(tw, "–\t")
				continue
			}
			v, _, _ := of(func(i int) float64 { return float64(rs[i].latency.ValueAtQuantile(q)) })
			_, _ = fmt.Fprintf(tw, "%.0f\t", v)
		}
		_, _ = fmt.Fprintf(tw, "%.0f\t\n", memory)
	}
	_ = tw.Flush()
}
