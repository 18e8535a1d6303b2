package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-rls/sluice/config"
	"github.com/sluice-rls/sluice/rls"
)

// serve is the service, until a signal ends it.
func serve(ctx context.Context, args []string, e env) int {
	settings, warnings, err := config.Parse(args, e.lookup)
	if errors.Is(err, flag.ErrHelp) {
		config.Usage(e.stdout)
		return exitOK
	}
	if err != nil {
		_, _ = fmt.Fprintf(e.stderr, "sluice: %v\n", err)
		return exitUsage
	}
	log, level := newLogger(settings, e.stderr)
	for _, w := range warnings {
		log.Warn("settings", slog.String("warning", w))
	}
	p, err := newProcess(settings, log, level) //nolint:contextcheck // a stream's context is its own
	if err != nil {
		_, _ = fmt.Fprintf(e.stderr, "sluice: %v\n", err)
		return exitError
	}
	p.greet(ctx, e.stderr)
	if err := p.run(ctx, e); err != nil {
		_, _ = fmt.Fprintf(e.stderr, "sluice: %v\n", err)
		return exitError
	}
	return exitOK
}

// process is everything that serves, put together.
type process struct {
	settings config.Settings
	log      *slog.Logger
	registry *prometheus.Registry
	book     *rulebook
	folder   *config.Folder // nil with the built-in rules
	store    *store
	switches *switchboard
	turned   *config.Folder // the file of the switches; nil without one
	health   *health
	grpc     *rls.Server
	ears     *listeners
	overdue  chan struct{} // closed when the time to shut down is over
}

// newProcess puts the process together and listens; nothing is answered before run.
func newProcess(s config.Settings, log *slog.Logger, level *slog.LevelVar) (*process, error) {
	p := &process{settings: s, log: log, registry: prometheus.NewRegistry(), overdue: make(chan struct{})}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())
	secure, err := serverTLS(s.GRPCTLS, log, p.registry)
	if err != nil {
		return nil, err
	}
	collectSooner()
	memory := limitMemory(os.DirFS("/"), log)
	if p.store, err = openStore(s, log, p.registry, roomForBuckets(memory)); err != nil {
		return nil, err
	}
	p.book = newRulebook(s, log, p.registry)
	service := rls.New(p.store.Store, p.book.rules, serviceOptions(s, log, p.registry))
	p.switches = newSwitchboard(s, log, level, service, p.store)
	p.registry.MustRegister(p.switches)
	p.grpc = rls.NewServer(service, rls.ServerOptions{
		MaxConnectionAge:      s.GRPCMaxConnectionAge,
		MaxConnectionAgeGrace: s.GRPCMaxConnectionAgeGrace,
		TLS:                   secure,
		MaxBuffered:           roomForRequests(memory),
		Lean:                  s.GRPCEngine == "lean",
	})
	p.health = &health{tell: p.grpc.SetServing, store: p.store.ready, depends: p.store.healthy}
	p.book.health = p.health.setRules
	p.loadSwitches()
	if err := p.loadRules(); err != nil {
		p.store.close()
		return nil, err
	}
	if p.ears, err = listen(p, service); err != nil {
		p.store.close()
		return nil, err
	}
	return p, nil
}

// loadRules loads the rules for the first time, so that the first call finds them.
func (p *process) loadRules() error {
	path, examples := p.settings.RulesPath()
	if examples {
		return p.book.loadExamples()
	}
	o := p.settings.FolderOptions()
	o.Log = p.log
	p.folder = config.NewFolder(path, o)
	files, err := p.folder.Read()
	p.book.apply(files, err)
	return nil
}

// loadSwitches reads the file of the switches for the first time, if there is one.
func (p *process) loadSwitches() {
	if p.settings.SwitchesFile == "" {
		return
	}
	p.turned = config.NewFolder(p.settings.SwitchesFile, config.FolderOptions{Log: p.log})
	files, err := p.turned.Read()
	p.switches.apply(files, err)
}

func serviceOptions(s config.Settings, log *slog.Logger, reg prometheus.Registerer) rls.Options {
	o := rls.Options{
		Logger:            log,
		Registerer:        reg,
		Shadow:            s.ShadowMode,
		Quota:             s.QuotaMode,
		DynamicMetadata:   s.ResponseDynamicMetadata,
		NearLimitRatio:    s.NearLimitRatio,
		OverrideAlgorithm: algorithms[s.DefaultAlgorithm],
	}
	if s.LimitResponseHeadersEnabled {
		o.Headers = &rls.HeaderNames{Limit: s.LimitHeader, Remaining: s.RemainingHeader, Reset: s.ResetHeader}
	}
	return o
}

func buildInfo() prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ratelimit_build_info",
		Help: "Always 1; the label is the version of the program.",
	}, []string{"version"})
	info.WithLabelValues(versionText()).Set(1)
	return info
}

// run serves until a signal, the end of ctx or a failure, and shuts down.
func (p *process) run(ctx context.Context, e env) error {
	signals := make(chan os.Signal, 4)
	defer e.notify(signals)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reload := make(chan struct{}, 1)

	group, ctx := errgroup.WithContext(ctx)
	p.ears.serve(group) //nolint:contextcheck // a connection's context is its own
	group.Go(func() error { return p.store.run(ctx) })
	group.Go(func() error { return p.health.watch(ctx) })
	if p.turned != nil {
		group.Go(func() error { return p.switches.watch(ctx, p.turned) })
	}
	if p.folder != nil {
		group.Go(func() error { return p.book.watch(ctx, p.folder, reload) })
	}
	group.Go(func() error {
		defer cancel()
		delay := p.settings.DrainDelay
		if !p.await(ctx, signals, reload) { // a failure: whom would it help to wait?
			delay = 0
		}
		p.shutdown(context.WithoutCancel(ctx), signals, delay)
		return nil
	})
	ended := make(chan error, 1)
	go func() {
		err := group.Wait()
		p.store.close()
		ended <- err
	}()
	var err error
	how := "stopped"
	select {
	case err = <-ended:
	case <-p.overdue: // what is left ends with the process
		err = context.Cause(ctx)
		how = "stopped before all was closed: the time for it is over"
	}
	if err == nil || errors.Is(err, context.Canceled) {
		p.log.Info(how) //nolint:sloglint // one of the two above
		return nil
	}
	return err
}
