package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

// await returns when it is time to stop, passing on the wishes to reload until then, and
// reports whether a signal said so.
func (p *process) await(ctx context.Context, signals <-chan os.Signal, reload chan<- struct{}) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				p.log.Info("shutting down", slog.String("signal", sig.String()))
				return true
			}
			select {
			case reload <- struct{}{}:
			default: // one is waiting already
			}
		}
	}
}

// cutTime is the time from a second signal to the end of the process.
const cutTime = 250 * time.Millisecond

// shutdown ends the serving in the order that loses no call: health tells Envoy to stay
// away, then Envoy has a delay to notice, then connections are told to go and calls in
// flight finish. SHUTDOWN_TIMEOUT from its beginning the process is overdue, whatever is
// left; a second signal cuts at once.
func (p *process) shutdown(ctx context.Context, signals <-chan os.Signal, wait time.Duration) {
	// A quarter of what the delay leaves, a second at most, is for the store: it gives back
	// what it holds and ends what it has sent.
	whole := p.settings.ShutdownTimeout
	ctx, cancel := context.WithTimeout(ctx, whole-min((whole-wait)/4, time.Second))
	defer cancel()
	overdue := time.AfterFunc(whole, sync.OnceFunc(func() { close(p.overdue) }))
	p.health.drain()
	done := make(chan struct{})
	go func() {
		defer close(done)
		delay := time.NewTimer(wait)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-ctx.Done():
		}
		p.grpc.Shutdown(ctx)
		p.ears.shutdown(ctx)
	}()
	for {
		select {
		case <-done:
			return
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				p.log.Warn("cutting the calls in flight", slog.String("signal", sig.String()))
				cancel()
				overdue.Reset(cutTime)
			}
		}
	}
}
