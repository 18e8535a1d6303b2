package prefetch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/backend/prefetch"
)

// TestNoTokenIsLostOrMade has instances whose calls charge a tenant, a route and a user, all
// or none, with buckets that hardly fill up in that time, or windows that last longer. Once all
// leases are back, each bucket lacks exactly what passed.
func TestNoTokenIsLostOrMade(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			net := &remote{Store: memstore.New(memstore.Options{}), random: rand.New(rand.NewPCG(seed, 2))}
			of := func(capacity uint64) backend.Limit {
				year := 365 * 24 * time.Hour
				if seed%2 == 1 {
					return inWindow(capacity, year)
				}
				return backend.Limit{Requests: 1000, Period: year, Burst: capacity}
			}
			limits := map[string]backend.Limit{"tenant": of(5000)}
			for i := range uint64(4) {
				limits[fmt.Sprint("route", i)] = of(1000 << i)
			}
			for i := range 50 {
				limits[fmt.Sprint("user", i)] = of(100)
			}
			var mu sync.Mutex
			passed := make(map[string]float64)
			ctx, cancel := context.WithCancel(t.Context())
			var running, calling sync.WaitGroup
			var stores []*prefetch.Store
			for i := range 5 {
				s := prefetch.New(net, prefetch.Options{})
				stores = append(stores, s)
				running.Go(func() {
					if err := s.Run(ctx); err != nil {
						t.Error(err)
					}
				})
				random := rand.New(rand.NewPCG(seed, uint64(i)+10))
				for range 3000 {
					var takes []backend.Take
					for _, key := range []string{"tenant", fmt.Sprint("route", random.IntN(4)), fmt.Sprint("user", random.IntN(50))} {
						takes = append(takes, charge(key, limits[key], 1+random.Uint64N(2)))
					}
					takes[2].Mode = backend.Mode(random.IntN(3))
					wait := time.Duration(random.IntN(4_000)) * time.Millisecond
					calling.Go(func() {
						time.Sleep(wait)
						got := make([]backend.Decision, len(takes))
						if err := s.Take(ctx, takes, got); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						for i := range takes {
							passed[string(takes[i].Key)] += float64(got[i].Charged)
						}
						if !backend.Denied(takes, got) && got[0].Charged != takes[0].Hits {
							t.Errorf("a call that passes charged its tenant %d of %d", got[0].Charged, takes[0].Hits)
						}
					})
				}
			}
			calling.Wait()
			cancel()
			running.Wait()
			for key, limit := range limits {
				var got [1]backend.Decision
				if err := net.Take(t.Context(), []backend.Take{{Key: []byte(key), Limit: limit}}, got[:]); err != nil {
					t.Fatal(err)
				}
				if lacks := limit.Capacity() - got[0].Level; lacks < passed[key]-0.01 || lacks > passed[key]+0.01 {
					t.Errorf("seed %d: %q lacks %v tokens, but %v passed", seed, key, lacks, passed[key])
				}
			}
			leased := uint64(0)
			for _, s := range stores {
				_, n, _, _ := s.Counts()
				leased += n
			}
			if passed["tenant"] < 4000 || leased < 1000 {
				t.Errorf("seed %d: %v passed, %d of the takes from leases: the test shows nothing", seed, passed["tenant"], leased)
			}
		})
	}
}
