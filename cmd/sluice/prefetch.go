package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-rls/sluice/backend/prefetch"
	"github.com/sluice-rls/sluice/config"
	"github.com/sluice-rls/sluice/rls"
)

var _ rls.Immediate = (*prefetch.Store)(nil)

// prefetched puts prefetching before a store, so that hot keys are decided without it.
func prefetched(o *store, s config.Settings, reg prometheus.Registerer) {
	ahead := prefetch.New(o.Store, prefetch.Options{
		Fraction: s.PrefetchFraction,
		Scarcity: s.PrefetchScarcity,
		Budget:   s.Redis.Budget,
	})
	reg.MustRegister(ahead)
	run := o.run
	o.Store, o.leases = ahead, ahead
	o.run = func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return run(ctx) })
		group.Go(func() error { return ahead.Run(ctx) })
		return group.Wait()
	}
}

// shownLeases is the most leases that the page of leases has.
const shownLeases = 1000

// leasesPage lists what this instance holds ahead, nil if it holds nothing ever. Keys have
// bytes of clients in them, so they are quoted.
func (s *store) leasesPage() http.HandlerFunc {
	if s.leases == nil {
		return nil
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		out := bufio.NewWriter(w)
		defer func() { _ = out.Flush() }()
		leases, all := s.leases.Leases(shownLeases)
		_, _ = fmt.Fprintf(out, "# %d leases on this instance, the largest first\n# tokens  for  level in Redis  hits/s here  pause  bucket\n", all)
		for _, l := range leases {
			_, _ = fmt.Fprintf(out, "%d  %v  %.0f  %.1f  %v  %q\n",
				l.Tokens, l.Life.Round(time.Millisecond), l.Level, l.Rate, l.Pause.Round(time.Millisecond), l.Key)
		}
	}
}
