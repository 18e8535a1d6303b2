package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-rls/sluice/admin"
)

// health knows whether the process should get calls, from what its parts tell. It is
// one state for gRPC health and /healthcheck; /readyz adds the store.
type health struct {
	tell func(serving bool) // gRPC health

	mu       sync.Mutex
	draining bool
	rules    error  // files are there and no domain is in force
	broken   string // the domains whose files have mistakes
	// store is the store's part of /readyz; nil: it has none.
	store func() admin.Part
	// depends says why the store makes the process unhealthy; nil: it never does.
	depends func() error
}

var errDraining = errors.New("the process is shutting down")

// setRules tells of a load: err is nil if rules are in force or no file is there, and
// broken names what has mistakes all the same.
func (h *health) setRules(err error, broken string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rules, h.broken = err, broken
	h.tellLocked()
}

// drain ends the serving for good.
func (h *health) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	h.tellLocked()
}

// watchEvery is how often the store is asked whether the process is healthy.
const watchEvery = 100 * time.Millisecond

// watch tells of changes in the store's health until ctx is done.
func (h *health) watch(ctx context.Context) error {
	if h.depends == nil {
		return nil
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		h.mu.Lock()
		h.tellLocked()
		h.mu.Unlock()
	}
}

func (h *health) tellLocked() { h.tell(h.errLocked() == nil) }

func (h *health) errLocked() error {
	if h.draining {
		return errDraining
	}
	if h.depends != nil {
		return errors.Join(h.rules, h.depends())
	}
	return h.rules
}

// err is why /healthcheck fails. Redis is not asked unless somebody wants that: calls are
// answered without it, and a restart of this process would not bring it back.
func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.errLocked()
}

// parts are those of /readyz.
func (h *health) parts() []admin.Part {
	h.mu.Lock()
	draining, rules, broken := h.draining, part("rules", h.rules), h.broken
	h.mu.Unlock()
	if rules.OK {
		rules.Detail = broken
	}
	parts := []admin.Part{rules}
	if h.store != nil {
		parts = append(parts, h.store())
	}
	if draining {
		parts = append(parts, part("process", errDraining))
	}
	return parts
}

func part(name string, err error) admin.Part {
	p := admin.Part{Name: name, OK: err == nil}
	if err != nil {
		p.Detail = err.Error()
	}
	return p
}
