package main

import (
	"errors"
	"sync"

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
	store    func() error
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

func (h *health) tellLocked() { h.tell(h.errLocked() == nil) }

func (h *health) errLocked() error {
	if h.draining {
		return errDraining
	}
	return h.rules
}

// err is why /healthcheck fails. Redis is not asked: calls are answered without it, and
// a restart of this process would not bring it back.
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
		parts = append(parts, part("redis", h.store()))
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
