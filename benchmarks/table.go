package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
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
	_, _ = fmt.Fprintf(w, "\n%s: %s\n", t.name, t.what)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	heads := []string{"variant", "µs CPU/call", "min–max", "× echo", "calls/s", "denied"}
	if t.redis {
		heads = append(heads, "of it Redis", "reads/call")
	}
	if t.envoy {
		heads = append(heads, "share of CPU", "calls/s × echo")
	}
	if t.rate > 0 || t.envoy { // latency of a loop that waits for itself says little
		heads = append(heads, "p50 µs", "p99 µs", "p99.9 µs")
	}
	_, _ = fmt.Fprintln(tw, strings.Join(append(heads, "MiB", ""), "\t"))
	for _, name := range t.names {
		_, _ = fmt.Fprintln(tw, strings.Join(append(t.row(name), ""), "\t"))
	}
	_ = tw.Flush()
}

// row is what a variant has in the columns.
func (t *table) row(name string) []string {
	rs := t.results[name]
	of := func(f func(r, echo result) float64) (least, middle, most float64) {
		values := make([]float64, len(rs))
		for i, r := range rs {
			values[i] = f(r, t.results["echo"][i])
		}
		middle = median(values)
		return values[0], middle, values[len(values)-1]
	}
	cell := func(format string, f func(r, echo result) float64) string {
		_, middle, _ := of(f)
		return fmt.Sprintf(format, middle)
	}
	least, _, most := of(func(r, _ result) float64 { return r.cpuMicros() })
	row := []string{
		name,
		cell("%.1f", func(r, _ result) float64 { return r.cpuMicros() }),
		fmt.Sprintf("%.1f–%.1f", least, most),
		cell("%.2f", cpuBar(0).value),
		cell("%.0f", func(r, _ result) float64 { return float64(r.calls) / r.elapsed.Seconds() }),
		cell("%.0f %%", func(r, _ result) float64 { return 100 * float64(r.denied) / float64(r.calls) }),
	}
	if t.redis {
		row = append(row,
			cell("%.1f", func(r, _ result) float64 { return float64(r.redis.Microseconds()) / float64(r.calls) }),
			cell("%.4f", func(r, _ result) float64 { return r.readsPerCall() }))
	}
	if t.envoy {
		row = append(row,
			cell("%.0f %%", func(r, _ result) float64 { return 100 * float64(r.server) / float64(r.server+r.envoy) }),
			cell("%.2f", func(r, echo result) float64 { return float64(r.calls) / float64(echo.calls) }))
	}
	if t.rate > 0 || t.envoy {
		for _, q := range []float64{50, 99, 99.9} {
			row = append(row, cell("%.0f", func(r, _ result) float64 { return float64(r.latency.ValueAtQuantile(q)) }))
		}
	}
	return append(row, cell("%.0f", func(r, _ result) float64 { return float64(r.memory) / (1 << 20) }))
}
