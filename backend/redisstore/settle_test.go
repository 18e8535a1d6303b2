package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/internal/proc"
)

// twoScripts begins a call over two scripts, of which the second denies and the first has
// charged its four tokens.
func twoScripts(t *testing.T) (*Store, *proc.Process, []batch, []backend.Take, []backend.Decision) {
	t.Helper()
	addr, p := proc.Redis(t)
	store, err := New(Options{Addrs: []string{addr}, ReadTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	limit := backend.Limit{Requests: 10, Period: 24 * time.Hour, Burst: 10}
	takes := []backend.Take{{Key: []byte("a"), Limit: limit, Hits: 4}, {Key: []byte("b"), Limit: limit, Hits: 11}}
	batches := make([]batch, 2)
	batches[0].add(0, "rl1:a")
	batches[1].add(1, "rl1:b")
	got := make([]backend.Decision, 2)
	if err := store.runAll(t.Context(), batches, takes, true, got); err != nil {
		t.Fatal(err)
	}
	if got[0].Charged != 4 || got[0].Level != 6 {
		t.Fatalf("%+v, want the first take charged by its own script", got)
	}
	return store, p, batches, takes, got
}

func TestGivingGoesOnWithoutTheCaller(t *testing.T) {
	store, _, batches, takes, got := twoScripts(t)
	left, leave := context.WithCancel(t.Context())
	leave()
	store.settle(left, batches, takes, got)
	if !got[0].OK || got[0].Charged != 0 || got[0].Level != 10 {
		t.Errorf("%+v, want the first take untouched", got[0])
	}
	store.settling.Wait()
	takes[0].Hits = 10
	if err := store.run(t.Context(), &batches[0], store.argument(&batches[0], takes, false), got); err != nil {
		t.Fatal(err)
	}
	if !got[0].OK || store.Kept() != 0 {
		t.Errorf("%+v, kept %d: a denied call was charged (R38)", got[0], store.Kept())
	}
}

func TestGivingFails(t *testing.T) {
	store, p, batches, takes, got := twoScripts(t)
	p.Stop()
	store.settle(t.Context(), batches, takes, got)
	if got[0].Charged != 0 || got[0].Level != 6 || store.Kept() != 4 {
		t.Errorf("%+v, kept %d, want a level of 6 and 4 tokens kept", got, store.Kept())
	}
}
