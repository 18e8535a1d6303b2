package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/config"
	"github.com/sluice-rls/sluice/descriptors"
	example "github.com/sluice-rls/sluice/examples/envoy"
)

// rulebook keeps the rules in force: it loads what the folder has whenever that
// changes, and swaps the whole set at once.
type rulebook struct {
	log     *slog.Logger
	loader  *descriptors.Loader
	current atomic.Pointer[descriptors.Rules]
	health  func(err error, broken string) // told after each load
	metrics reloadMetrics
}

func newRulebook(s config.Settings, log *slog.Logger, reg prometheus.Registerer) *rulebook {
	b := &rulebook{
		log:     log,
		loader:  descriptors.NewLoader(loaderOptions(s)),
		health:  func(error, string) {},
		metrics: newReloadMetrics(reg),
	}
	rules, _ := b.loader.Load(nil)
	b.current.Store(rules)
	return b
}

func loaderOptions(s config.Settings) descriptors.Options {
	return descriptors.Options{
		MergeDomains:     s.MergeDomainConfig,
		DefaultAlgorithm: algorithms[s.DefaultAlgorithm],
		HashKeys:         s.HashKeys,
		HashSecret:       []byte(s.HashSecret),
	}
}

// algorithms gives the algorithms by the names of the rule language; the empty name is
// the default.
var algorithms = map[string]backend.Algorithm{
	"token_bucket":   backend.TokenBucket,
	"leaky_bucket":   backend.LeakyBucket,
	"fixed_window":   backend.FixedWindow,
	"sliding_window": backend.SlidingWindow,
	"sliding_log":    backend.SlidingLog,
}

// rules gives the rules in force, never nil.
func (b *rulebook) rules() *descriptors.Rules { return b.current.Load() }

// apply loads what was read. An error of the folder itself leaves the rules as they
// are.
func (b *rulebook) apply(files []config.File, err error) {
	if err != nil {
		b.metrics.failed()
		b.log.Error("reading rules, those in force stay", slog.Any("error", err))
		return
	}
	rules, problems := b.loader.Load(toSources(files))
	b.current.Store(rules)
	mistakes := 0
	for _, p := range problems {
		if p.Warning {
			b.log.Warn("rules file", slog.String("warning", p.Error()))
			continue
		}
		mistakes++
		b.log.Error("rules file, what was last good in it stays in force", slog.String("mistake", p.Error()))
	}
	b.health(inForce(rules, files), broken(rules, mistakes))
	b.metrics.loaded(rules.Version(), mistakes)
	b.log.Info("rules loaded",
		slog.Int("rules", rules.Len()), slog.String("domains", strings.Join(rules.Domains(), " ")),
		slog.Int("files", len(files)), slog.Int("mistakes", mistakes), slog.String("version", rules.Version()))
}

// inForce is an error if files are there and none of their domains acts.
func inForce(rules *descriptors.Rules, files []config.File) error {
	if len(files) > 0 && len(rules.Domains()) == 0 {
		return fmt.Errorf("no domain is in force: %s, each with mistakes that the log lists", plural(len(files), "file"))
	}
	return nil
}

// broken says which domains have mistakes in their files; it is empty if none has.
func broken(rules *descriptors.Rules, mistakes int) string {
	var parts []string
	for _, d := range rules.States() {
		switch {
		case !d.InForce:
			parts = append(parts, fmt.Sprintf("domain %q is not in force: %s", d.Domain, strings.Join(d.Files, ", ")))
		case d.Stale:
			parts = append(parts, fmt.Sprintf("domain %q keeps its last good rules: %s", d.Domain, strings.Join(d.Files, ", ")))
		}
	}
	if mistakes > 0 {
		parts = append(parts, plural(mistakes, "mistake")+" in the rules files, see the log")
	}
	return strings.Join(parts, "; ")
}

// toSources gives the files that were read to the loader's form.
func toSources(files []config.File) []descriptors.Source {
	sources := make([]descriptors.Source, len(files))
	for i, f := range files {
		sources[i] = descriptors.Source(f)
	}
	return sources
}

// loadExamples puts the built-in rules in force.
func (b *rulebook) loadExamples() error {
	var files []config.File
	err := fs.WalkDir(example.Rules(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(example.Rules(), path)
		files = append(files, config.File{Name: "examples/envoy/rules/" + path, Data: data})
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the built-in rules: %w", err)
	}
	b.apply(files, nil)
	return nil
}

// watch loads the rules of the folder and keeps up with it until ctx is done.
func (b *rulebook) watch(ctx context.Context, folder *config.Folder, reload <-chan struct{}) error {
	if err := folder.Run(ctx, reload, b.apply); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("watching the rules: %w", err)
	}
	return nil
}

// reloadMetrics tell of the loads of rules.
type reloadMetrics struct {
	reloads *prometheus.CounterVec
	success prometheus.Gauge
	last    prometheus.Gauge
	info    *prometheus.GaugeVec
}

func newReloadMetrics(reg prometheus.Registerer) reloadMetrics {
	m := reloadMetrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimit_config_reloads_total",
			Help: "Loads of the rules; an error is a load with at least one mistake.",
		}, []string{"source", "result"}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ratelimit_config_last_reload_successful",
			Help: "1 if the last load of the rules found no mistake, else 0.",
		}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ratelimit_config_last_success_timestamp_seconds",
			Help: "When rules were last loaded without a mistake.",
		}),
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ratelimit_config_info",
			Help: "Always 1; the label is the version of the rules in force.",
		}, []string{"version"}),
	}
	for _, result := range []string{"success", "error"} {
		m.reloads.WithLabelValues("file", result)
	}
	reg.MustRegister(m.reloads, m.success, m.last, m.info)
	return m
}

func (m *reloadMetrics) failed() {
	m.reloads.WithLabelValues("file", "error").Inc()
	m.success.Set(0)
}

func (m *reloadMetrics) loaded(version string, mistakes int) {
	m.info.Reset()
	m.info.WithLabelValues(version).Set(1)
	if mistakes > 0 {
		m.failed()
		return
	}
	m.reloads.WithLabelValues("file", "success").Inc()
	m.success.Set(1)
	m.last.Set(float64(time.Now().UnixNano()) / 1e9)
}
