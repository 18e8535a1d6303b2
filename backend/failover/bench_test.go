package failover_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/failover"
	"github.com/sluice-rls/sluice/backend/memstore"
)

// BenchmarkTake is what standing before a store costs: that of the store itself is about
// 200 ns here.
func BenchmarkTake(b *testing.B) {
	for _, bench := range []struct {
		name string
		away bool
		want backend.Source
	}{{"asked", false, backend.Bucketed}, {"away", true, backend.LocalShare}} {
		b.Run(bench.name, func(b *testing.B) {
			inner := &fault{Store: memstore.New(memstore.Options{})}
			s := failover.New(inner, failover.Options{Budget: time.Second, Slow: time.Second})
			defer s.Close()
			call := []backend.Take{{Key: []byte("{4:edge7:api_keyk}:bucket"), Limit: perSecond(1<<32-1, 1<<32-1), Hits: 1}}
			var d [1]backend.Decision
			if bench.away {
				inner.set(0, errors.New("away"))
				for !s.Open() {
					if err := s.Take(b.Context(), call, d[:]); err != nil {
						b.Fatal(err)
					}
				}
			}
			if err := s.Take(b.Context(), call, d[:]); err != nil || d[0].Source != bench.want {
				b.Fatalf("decision = %+v, %v", d[0], err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				takes := append([]backend.Take(nil), call...)
				var d [1]backend.Decision
				for pb.Next() {
					if err := s.Take(context.Background(), takes, d[:]); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
