package admin

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/sluice-rls/sluice/descriptors"
)

// DebugOptions are what the operators' pages need.
type DebugOptions struct {
	// Rules gives the rules in force, never nil.
	Rules    func() *descriptors.Rules
	Gatherer prometheus.Gatherer
	// Switches are on /switches; nil: there is no such page.
	Switches Switches
	// Leases is the page /leases, of tokens that are held ahead; nil: there is no such page.
	Leases http.HandlerFunc
}

// NewDebug returns the handler of the operators' address. It has profiles, so it
// belongs on an address that only operators reach.
func NewDebug(o DebugOptions) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", index)
	mux.HandleFunc("/rlconfig", o.rules)
	mux.HandleFunc("/stats", o.stats)
	if o.Switches != nil {
		mux.Handle("/switches", turner(o.Switches))
	}
	if o.Leases != nil {
		mux.HandleFunc("/leases", o.Leases)
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func index(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, `/debug/pprof/: profiles
/leases: tokens that this instance holds ahead of use, if it prefetches
/rlconfig: the rules in force
/stats: all metrics as text
/switches: what is changed at run time; POST /switches?mode=shadow changes it
`)
}

// rules lists the limits in force, one a line, in the order of the files.
func (o *DebugOptions) rules(w http.ResponseWriter, _ *http.Request) {
	rules := o.Rules()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := bufio.NewWriter(w)
	defer func() { _ = out.Flush() }()
	if rules.Len() == 0 {
		_, _ = fmt.Fprintln(out, "# no rules are in force: the rules folder is empty or its files have mistakes, see the log")
	}
	for r := range rules.All() {
		_, _ = fmt.Fprintf(out, "%s > %s: %s, shadow_mode: %t, quota_mode: %t\n", r.Domain, r.Path, limitText(r), r.Shadow, r.Quota)
	}
}

func limitText(r *descriptors.Rule) string {
	if r.Unlimited {
		return "unlimited"
	}
	text := fmt.Sprintf("unit=%s requests_per_unit=%d", r.Unit, r.RequestsPerUnit)
	if r.UnitMultiplier > 1 {
		text += fmt.Sprintf(" unit_multiplier=%d", r.UnitMultiplier)
	}
	if r.Limit.Burst != uint64(r.RequestsPerUnit) {
		text += fmt.Sprintf(" burst=%d", r.Limit.Burst)
	}
	return text
}

// stats writes the metrics in Prometheus' text form, for a look without Prometheus.
func (o *DebugOptions) stats(w http.ResponseWriter, _ *http.Request) {
	families, err := o.Gatherer.Gather()
	if err != nil {
		writeText(w, http.StatusInternalServerError, "gathering metrics: "+err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return // the client left
		}
	}
}
