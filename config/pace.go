package config

import (
	"context"
	"time"
)

// A pace decides when to look at something that tells of its changes in bursts, and
// sometimes not at all.
type pace struct {
	// quiet is how long a burst must be over, most the longest that it is waited for.
	quiet, most time.Duration
	// poll is the time between two calls of moved.
	poll time.Duration
	// moved looks cheaply whether anything has changed of which no touch told.
	moved func() bool
	// look takes the change. If it reports false, the change was still going on, and it
	// is called again; with last true it must make do with what it finds.
	look func(last bool) (done bool)
}

// run calls look after each burst of touches, and at once for each reload, until ctx is
// done. Both channels may be nil, and reload may be closed.
func (p pace) run(ctx context.Context, touched, reload <-chan struct{}) {
	poll := time.NewTicker(p.poll)
	defer poll.Stop()
	settled := time.NewTimer(p.quiet)
	settled.Stop()
	var deadline time.Time // of the burst; zero between bursts
	touch := func() {
		now := time.Now()
		if deadline.IsZero() {
			deadline = now.Add(p.most)
		}
		settled.Reset(min(p.quiet, deadline.Sub(now)))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-touched:
			touch()
		case <-poll.C:
			if deadline.IsZero() && p.moved() {
				touch()
			}
		case <-settled.C:
			if p.look(!time.Now().Before(deadline)) {
				deadline = time.Time{}
			} else {
				touch()
			}
		case _, ok := <-reload:
			if !ok {
				reload = nil
				continue
			}
			settled.Stop()
			deadline = time.Time{}
			p.look(true)
		}
	}
}
