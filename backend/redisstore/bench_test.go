package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/redisstore"
	"github.com/sluice-rls/sluice/internal/proc"
)

func BenchmarkTake(b *testing.B) {
	addr, _ := proc.Redis(b)
	for _, bench := range []struct {
		name  string
		keys  int
		takes int
		hits  uint64
	}{
		{"hot", 1, 1, 1}, {"hot/denied", 1, 1, 1 << 40}, {"keys=100000", 100_000, 1, 1}, {"keys=100000/takes=4", 100_000, 4, 1},
	} {
		b.Run(bench.name, func(b *testing.B) {
			store, err := redisstore.New(redisstore.Options{Addrs: []string{addr}, KeyPrefix: bench.name + ":", ReadTimeout: time.Second})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close() //nolint:errcheck // the server goes next
			limit := backend.Limit{Requests: 1, Period: time.Second, Burst: 1<<32 - 1}
			call := func(source *rand.Rand, takes []backend.Take, dst []backend.Decision) {
				for i := range takes {
					key := takes[i].Key[:0]
					takes[i] = backend.Take{Key: fmt.Appendf(key, "{4:edge}:api_key%d.%d", source.IntN(bench.keys), i), Limit: limit, Hits: bench.hits}
				}
				if err := store.Take(b.Context(), takes, dst); err != nil {
					b.Error(err)
				}
			}
			dst := make([]backend.Decision, bench.takes)
			call(rand.New(rand.NewPCG(1, 1)), make([]backend.Take, bench.takes), dst)
			if dst[0].OK != (bench.hits == 1) {
				b.Fatalf("%+v for %d hits", dst[0], bench.hits)
			}
			b.ReportAllocs()
			b.SetParallelism(16)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				source := rand.New(rand.NewPCG(rand.Uint64(), 1))
				takes, dst := make([]backend.Take, bench.takes), make([]backend.Decision, bench.takes)
				for pb.Next() {
					call(source, takes, dst)
				}
			})
		})
	}
}
