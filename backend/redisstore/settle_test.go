package redisstore_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/redisstore"
	"github.com/sluice-rls/sluice/internal/proc"
)

// many are the takes of a call over two scripts: thirty of a token, and the last of so many.
func many(last uint64) []backend.Take {
	var takes []backend.Take
	for i := range 30 {
		takes = append(takes, perDay("k"+strconv.Itoa(i), 10, 1))
	}
	takes[29].Hits = last
	return takes
}

func TestADeniedCallOverTwoScriptsIsGivenBack(t *testing.T) {
	t.Parallel()
	addr, _ := proc.Redis(t)
	store := open(t, redisstore.Options{Addrs: []string{addr}})
	for i, d := range take(t, store, many(11)...) {
		if want := 10.0; d.Charged != 0 || d.Level != want || d.OK == (i == 29) {
			t.Errorf("take %d: %+v, want nothing charged and a level of %v", i, d, want)
		}
	}
	for i, d := range take(t, store, many(10)...) {
		if !d.OK || i < 29 && d.Level != 9 {
			t.Errorf("take %d: %+v, want the tokens of a denied call back (R38)", i, d)
		}
	}
	if store.Kept() != 0 {
		t.Errorf("kept %d, want none", store.Kept())
	}
}

// TestGivingFails has a Redis that ends once the scripts of a call have charged it.
func TestGivingFails(t *testing.T) {
	t.Parallel()
	addr, p := proc.Redis(t)
	store := open(t, redisstore.Options{Addrs: []string{addr}})
	take(t, store, perDay("first", 10, 1)) // the server has the script now
	var mu sync.Mutex
	scripts := 0
	store.SetClock(func() int64 {
		mu.Lock()
		defer mu.Unlock()
		if scripts++; scripts == 3 {
			p.Stop()
		}
		return 0
	})
	for i, d := range take(t, store, many(11)...) {
		if i < 24 && (d.Charged != 0 || d.Level != 9) {
			t.Errorf("take %d: %+v, want nothing charged to it and a level of 9", i, d)
		}
	}
	if store.Kept() != 24 {
		t.Errorf("kept %d, want the 24 tokens of the first script, which could not go back", store.Kept())
	}
}

// TestACallThatFailsInPartIsGivenBack needs two nodes, of which one is gone.
func TestACallThatFailsInPartIsGivenBack(t *testing.T) {
	t.Parallel()
	cluster := proc.RedisClusterWith(t, 3, false)
	addrs := cluster.Masters
	store := open(t, redisstore.Options{Type: redisstore.Cluster, Addrs: addrs[:1], ReadTimeout: time.Second})
	keys := map[string]string{}
	for i := 0; len(keys) < 3; i++ {
		key := "{t" + strconv.Itoa(i) + "}"
		take(t, store, perDay(key, 10, 1))
		keys[store.Server([]byte(key))] = key
	}
	cluster.Processes[1].Stop()
	call := []backend.Take{perDay(keys[addrs[0]], 10, 4), perDay(keys[addrs[1]], 10, 4)}
	if err := store.Take(t.Context(), call, make([]backend.Decision, 2)); err == nil {
		t.Fatal("a decision without one of the nodes")
	}
	for end := time.Now().Add(10 * time.Second); ; {
		got := take(t, store, perDay(keys[addrs[0]], 10, 0))[0]
		if got.Level >= 9 && got.Level < 9.1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, want the four tokens of the call that failed back", got)
		}
	}
}
