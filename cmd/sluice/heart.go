package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-rls/sluice/backend/redisstore"
)

const (
	// beatEvery is the mean time between two heartbeats, and beatLife how long an instance
	// counts after its last one.
	beatEvery = 5 * time.Second
	beatLife  = 3 * beatEvery
	// beatsKept is the number of answers of which the highest is believed: a Redis that has
	// come back empty does not know yet who is there.
	beatsKept = 3
)

// heart tells Redis that this instance is there, and knows how many there are: what Redis
// told last, while it is away.
type heart struct {
	log    *slog.Logger
	shared *redisstore.Store
	name   string
	fixed  int // by INSTANCES; 0 counts
	count  atomic.Int64
	latest []int // answers, the last beatsKept
}

// newHeart makes a heart that beats for nobody yet.
func newHeart(log *slog.Logger, fixed int) *heart {
	h := &heart{log: log, name: rand.Text(), fixed: fixed}
	h.count.Store(1)
	return h
}

// instances is the number of instances that share the limits, at least one.
func (h *heart) instances() int {
	if h.fixed > 0 {
		return h.fixed
	}
	return int(h.count.Load())
}

// run beats until ctx is done.
func (h *heart) run(ctx context.Context) error {
	for {
		h.beat(ctx)
		wait := time.Duration(float64(beatEvery) * (0.8 + 0.4*mathrand.Float64()))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *heart) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, err := h.shared.Beat(ctx, h.name, beatLife)
	if err != nil {
		h.log.Debug("counting instances", slog.Any("error", err))
		return
	}
	h.hear(n)
}

// hear takes what Redis told.
func (h *heart) hear(n int) {
	h.latest = append(h.latest, n)
	h.latest = h.latest[max(0, len(h.latest)-beatsKept):]
	most := min(slices.Max(h.latest), math.MaxInt32)
	if before := h.count.Swap(int64(most)); before != int64(most) {
		h.log.Info("the number of instances changed", slog.Int("instances", most), slog.Int64("before", before))
	}
}

// leave tells Redis that this instance is there no more, if Redis can be told soon.
func (h *heart) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
	defer cancel()
	if err := h.shared.Leave(ctx, h.name); err != nil {
		h.log.Debug("leaving the list of instances", slog.Any("error", err))
	}
}
