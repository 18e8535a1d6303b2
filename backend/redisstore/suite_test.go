package redisstore_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/redisstore"
	"github.com/sluice-rls/sluice/backend/storetest"
	"github.com/sluice-rls/sluice/internal/proc"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	addr, _ := proc.Redis(t)
	storetest.Run(t, opener(redisstore.Options{Addrs: []string{addr}}))
}

func TestSuiteCluster(t *testing.T) {
	t.Parallel()
	storetest.Run(t, opener(redisstore.Options{Type: redisstore.Cluster, Addrs: proc.RedisCluster(t, 3)}))
}

// opener opens stores that share a Redis and no key, at a time that stands still.
func opener(o redisstore.Options) storetest.Open {
	var opened atomic.Int64
	return func(t *testing.T) (backend.Store, func(time.Duration)) {
		t.Helper()
		o := o
		o.KeyPrefix = "test-" + strconv.FormatInt(opened.Add(1), 10) + ":"
		store := open(t, o)
		now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		store.SetClock(func() int64 { return now.UnixMicro() })
		return store, func(d time.Duration) { now = now.Add(d) }
	}
}

// open opens a store for the time of a test. A slow machine is no error in these tests.
func open(t *testing.T, o redisstore.Options) *redisstore.Store {
	t.Helper()
	if o.ReadTimeout == 0 {
		o.ReadTimeout = 10 * time.Second
	}
	store, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}
