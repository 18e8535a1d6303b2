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
	for i, step := range []struct{ told, want int }{{2, 2}, {3, 3}, {1, 3}, {2, 3}, {2, 2}, {1, 2}, {5, 5}} {
		h.hear(step.told)
		if n := h.instances(); n != step.want {
			t.Errorf("step %d: instances() = %d after %d was told, want %d", i, n, step.told, step.want)
		}
	}
}

func TestInstancesByHand(t *testing.T) {
	h := newHeart(slog.New(slog.DiscardHandler), 7)
	h.hear(2)
	if n := h.instances(); n != 7 {
		t.Errorf("instances() = %d, want 7 as INSTANCES says", n)
	}
}
