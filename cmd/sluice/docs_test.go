package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-rls/sluice/config"
	"github.com/sluice-rls/sluice/rls"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const metricsHead = `# Metrics

Served on ` + "`/metrics`" + ` of the HTTP port. Labels come from the rules, never from requests, but for rules with
` + "`detailed_metric` or `value_to_metric`" + `: these have at most 1,000 series each, and one called other for the rest.
Beside these there are Go's own (` + "`go_*`, `process_*`" + `).

| metric | labels | what it counts |
|---|---|---|
`

// described collects what the collectors of a process say of themselves.
type described struct {
	*prometheus.Registry
	rows map[string]string
}

func (d *described) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		ch := make(chan *prometheus.Desc, 100)
		c.Describe(ch)
		close(ch)
		for desc := range ch {
			name, row := metricRow(desc.String())
			if strings.HasPrefix(name, "ratelimit_") {
				d.rows[name] = row
			}
		}
	}
	d.Registry.MustRegister(cs...)
}

// metricRow reads name, help and labels out of a description's text, which is the only
// thing that the library shows of it.
func metricRow(desc string) (name, row string) {
	between := func(from, to string) string {
		_, rest, _ := strings.Cut(desc, from)
		text, _, _ := strings.Cut(rest, to)
		return text
	}
	name = between(`fqName: "`, `"`)
	labels := strings.ReplaceAll(between("variableLabels: {", "}"), ",", ", ")
	return name, fmt.Sprintf("| `%s` | %s | %s |\n", name, labels, between(`help: "`, `", unit: "`))
}

func TestMetricsPageIsTheRegistry(t *testing.T) {
	d := &described{Registry: prometheus.NewRegistry(), rows: make(map[string]string)}
	lookup := func(name string) (string, bool) {
		text, ok := map[string]string{"REDIS_URL": "127.0.0.1:1", "PREFETCH": "auto"}[name]
		return text, ok
	}
	settings, _, err := config.Parse(nil, lookup)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	shared, err := openStore(settings, log, d, maxBuckets)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.close()
	d.MustRegister(buildInfo(), &keyring{})
	book := newRulebook(settings, log, d)
	service := rls.New(shared, book.rules, serviceOptions(settings, log, d))
	d.MustRegister(newSwitchboard(settings, log, new(slog.LevelVar), service, shared))
	embedded(d, maxBuckets)

	names := make([]string, 0, len(d.rows))
	for name := range d.rows {
		names = append(names, name)
	}
	sort.Strings(names)
	var page strings.Builder
	page.WriteString(metricsHead)
	for _, name := range names {
		page.WriteString(d.rows[name])
	}
	want := page.String()
	path := filepath.Join("..", "..", "docs", "metrics.md")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a page for everyone
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/metrics.md is out of date, go test ./cmd/sluice -run MetricsPage -update writes it (-want +got):\n%s", diff)
	}
}
