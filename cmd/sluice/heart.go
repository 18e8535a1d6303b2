package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluice-rls/sluice/backend/redisstore"
)

const (
	// beatEvery is the mean time between two heartbeats, and beatLife how long an instance
	// counts after its last one.
	beatEvery = time.Second
	beatLife  = 15 * beatEvery
	// beatsKept is the number of answers of which the highest is believed: a Redis that has
	// come back empty does not know yet who is there.
	beatsKept = 3
)

// heart tells Redis that this instance is there, and knows how many there are and which of
// them it is: what Redis told last, while it is away.
type heart struct {
	log    *slog.Logger
	shared *redisstore.Store
	name   string
	fixed  int // by INSTANCES; 0 counts
	// ranked are told the instance's rank among the others.
	ranked []interface{ SetRank(rank int) }
	count  atomic.Int64
	latest []heard // the last beatsKept
}

// heard is what Redis told: how many instances there are, and how many of them come before
// this one in an order that is the same for all.
type heard struct{ instances, rank int }

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
	n, rank, err := h.shared.Beat(ctx, h.name, beatLife)
	if err != nil {
		h.log.Debug("counting instances", slog.Any("error", err))
		return
	}
	h.hear(heard{n, rank})
}

// hear takes what Redis told.
func (h *heart) hear(told heard) {
	h.latest = append(h.latest, told)
	h.latest = h.latest[max(0, len(h.latest)-beatsKept):]
	believed := h.latest[0]
	for _, later := range h.latest[1:] {
		if later.instances >= believed.instances {
			believed = later
		}
	}
	for _, r := range h.ranked {
		r.SetRank(believed.rank)
	}
	most := min(believed.instances, math.MaxInt32)
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
