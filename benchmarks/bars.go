package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// bar is what a case of the lean engine may cost. Its value is that of one run, beside the
// run of the bare server in the same round.
type bar struct {
	what  string
	most  float64
	value func(r, echo result) float64
}

func cpuBar(most float64) bar {
	return bar{"CPU × echo", most, func(r, echo result) float64 { return r.cpuMicros() / echo.cpuMicros() }}
}

func readsBar(most float64) bar {
	return bar{"Redis reads a call", most, func(r, _ result) float64 { return r.readsPerCall() }}
}

func latencyBar(quantile float64) bar {
	return bar{fmt.Sprintf("p%v × echo", quantile), 1, func(r, echo result) float64 {
		return float64(r.latency.ValueAtQuantile(quantile)) / float64(echo.latency.ValueAtQuantile(quantile))
	}}
}

var slownessBar = bar{"time of a request × echo", 1, func(r, echo result) float64 { return float64(echo.calls) / float64(r.calls) }}

// verdict is a line of the summary.
type verdict struct {
	what        string
	value, most float64
	unit        string
}

// verdicts are those of a case: medians over the rounds.
func (t *table) verdicts() []verdict {
	var all []verdict
	for _, name := range t.names {
		if !strings.HasPrefix(name, "lean") {
			continue
		}
		for _, b := range t.bars {
			values := make([]float64, len(t.results[name]))
			for i, r := range t.results[name] {
				values[i] = b.value(r, t.results["echo"][i])
			}
			all = append(all, verdict{t.what + ": " + b.what, median(values), b.most, ""})
		}
	}
	return all
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// summary prints what the lean engine has reached.
func summary(w io.Writer, all []verdict) {
	if len(all) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, "\nsummary: what the lean engine may cost, and does")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range all {
		met := "met"
		if v.value > v.most {
			met = "NOT MET"
		}
		_, _ = fmt.Fprintf(tw, "%s\t%.2f%s\tat most %v%s\t%s\n", v.what, v.value, v.unit, v.most, v.unit, met)
	}
	_ = tw.Flush()
}
