package prefetch_test

import (
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/backend/prefetch"
	"github.com/sluice-rls/sluice/backend/storetest"
)

func TestSuite(t *testing.T) {
	storetest.Run(t, func(*testing.T) (backend.Store, func(time.Duration)) {
		now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		ours := int64(1)
		store := prefetch.New(memstore.New(memstore.Options{Now: func() time.Time { return now }}), prefetch.Options{})
		store.SetClock(func() int64 { return ours })
		return store, func(d time.Duration) {
			now = now.Add(d)
			if d < 0 { // ours is monotonic; what the store said before is forgotten in a second
				d = time.Second
			}
			ours += int64(d)
		}
	})
}
