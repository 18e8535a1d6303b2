package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"gopkg.in/yaml.v3"

	"github.com/sluice-rls/sluice/admin"
	"github.com/sluice-rls/sluice/config"
	"github.com/sluice-rls/sluice/rls"
)

var _ admin.Switches = (*switchboard)(nil)

// modes are the positions of the switch over all calls.
var modes = map[string]rls.Switch{
	"enforce": rls.EnforceAll,
	"shadow":  rls.ShadowAll,
	"allow":   rls.AllowAll,
	"deny":    rls.DenyAll,
}

// logLevels are the positions of the log's switch.
var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

// A lever is one switch.
type lever struct {
	start     string // what the settings say
	positions []string
	turn      func(position string)
}

// switchboard has what can be changed while the process runs: by a call of an operator, or
// by a file, whose word is kept over a restart. The latest change counts.
type switchboard struct {
	log    *slog.Logger
	level  *slog.LevelVar // of log
	levers map[string]lever

	mu sync.Mutex // guards the rest
	// now are the positions, and filed those that the file named last, or the settings where
	// it names none.
	now, filed map[string]string
}

func newSwitchboard(s config.Settings, log *slog.Logger, level *slog.LevelVar, service *rls.Service, shared *store) *switchboard {
	b := &switchboard{log: log, level: level, levers: map[string]lever{
		"mode": {"enforce", slices.Sorted(maps.Keys(modes)), func(to string) { service.SetSwitch(modes[to]) }},
		"on_failure": {s.OnFailure, slices.Sorted(maps.Keys(onFailures)), func(to string) {
			for _, f := range shared.fallbacks {
				f.SetOnFailure(onFailures[to])
			}
		}},
		"log_level": {strings.ToLower(s.LogLevel.String()), slices.Sorted(maps.Keys(logLevels)), func(to string) { level.Set(logLevels[to]) }},
	}}
	b.filed = map[string]string{}
	for name, l := range b.levers {
		b.filed[name] = l.start
	}
	b.now = maps.Clone(b.filed)
	return b
}

// Switches is part of admin.Switches.
func (b *switchboard) Switches() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.now)
}

// Turn is part of admin.Switches.
func (b *switchboard) Turn(to map[string]string, who string) error {
	if err := b.check(to); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turnLocked(to, who)
	return nil
}

// check says everything that is wrong with positions.
func (b *switchboard) check(to map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(to)) {
		l, ok := b.levers[name]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("switch %q: there is none, but %s", name, strings.Join(slices.Sorted(maps.Keys(b.levers)), ", ")))
		case !slices.Contains(l.positions, to[name]):
			errs = append(errs, fmt.Errorf("%s: %q is not one of %s", name, to[name], strings.Join(l.positions, ", ")))
		}
	}
	return errors.Join(errs...)
}

func (b *switchboard) turnLocked(to map[string]string, who string) {
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if b.now[name] == to[name] {
			continue
		}
		b.log.Log(context.Background(), max(slog.LevelWarn, b.level.Level()), "a switch was turned", // whatever the log leaves out
			slog.String("switch", name), slog.String("old", b.now[name]), slog.String("new", to[name]), slog.String("by", who))
		b.levers[name].turn(to[name])
		b.now[name] = to[name]
	}
}

// apply takes what the file says. Where it has not changed, it does not undo what an
// operator turned since.
func (b *switchboard) apply(files []config.File, err error) {
	for _, f := range files {
		err = errors.Join(err, f.Err)
	}
	if err != nil {
		b.log.Error("reading switches, they stay as they are", slog.Any("error", err))
		return
	}
	filed, who := map[string]string{}, "the file"
	for name, l := range b.levers {
		filed[name] = l.start
	}
	for _, f := range files {
		named, err := readSwitches(f.Data)
		if err = errors.Join(err, b.check(named)); err != nil {
			b.log.Error("reading switches, they stay as they are", slog.String("file", f.Name), slog.Any("error", err))
			return
		}
		maps.Copy(filed, named)
		who = f.Name
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := maps.Clone(filed)
	maps.DeleteFunc(changed, func(name, position string) bool { return b.filed[name] == position })
	b.filed = filed
	b.turnLocked(changed, who)
}

// readSwitches reads a YAML map of names and positions; an empty file names none.
func readSwitches(data []byte) (map[string]string, error) {
	named := map[string]string{}
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&named); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return named, nil
}

// watch reads the file again whenever it changes, until ctx is done.
func (b *switchboard) watch(ctx context.Context, file *config.Folder) error {
	return file.Run(ctx, nil, b.apply)
}

var switchDesc = prometheus.NewDesc("ratelimit_switch",
	"1 for the position of a switch that can be turned while the process runs.", []string{"switch", "position"}, nil)

// Describe is part of prometheus.Collector.
func (b *switchboard) Describe(ch chan<- *prometheus.Desc) { ch <- switchDesc }

// Collect is part of prometheus.Collector.
func (b *switchboard) Collect(ch chan<- prometheus.Metric) {
	now := b.Switches()
	for name, l := range b.levers {
		for _, position := range l.positions {
			ch <- prometheus.MustNewConstMetric(switchDesc, prometheus.GaugeValue, truth(now[name] == position), name, position)
		}
	}
}
