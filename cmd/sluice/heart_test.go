package main

import (
	"log/slog"
	"testing"
)

// A Redis that has come back empty counts from one: that is not believed at once.
func TestInstancesGoDownSlowly(t *testing.T) {
	h := newHeart(slog.New(slog.DiscardHandler), 0)
	if n := h.instances(); n != 1 {
		t.Errorf("instances() = %d before any answer, want 1", n)
	}
	var rank ranked
	h.ranked = append(h.ranked, &rank)
	for i, step := range []struct{ told, want heard }{
		{heard{2, 0}, heard{2, 0}},
		{heard{3, 1}, heard{3, 1}},
		{heard{1, 0}, heard{3, 1}},
		{heard{2, 1}, heard{3, 1}},
		{heard{2, 0}, heard{2, 0}},
		{heard{1, 0}, heard{2, 0}},
		{heard{5, 4}, heard{5, 4}},
	} {
		h.hear(step.told)
		if n := h.instances(); n != step.want.instances || int(rank) != step.want.rank {
			t.Errorf("step %d: instances() = %d and the rank is %d after %v was told, want %v", i, n, rank, step.told, step.want)
		}
	}
}

// ranked is told a rank.
type ranked int

func (r *ranked) SetRank(rank int) { *r = ranked(rank) }

func TestInstancesByHand(t *testing.T) {
	h := newHeart(slog.New(slog.DiscardHandler), 7)
	h.hear(heard{2, 0})
	if n := h.instances(); n != 7 {
		t.Errorf("instances() = %d, want 7 as INSTANCES says", n)
	}
}
