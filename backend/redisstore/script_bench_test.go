package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/internal/proc"
)

// BenchmarkScript is what Redis' process spends on a take, of calls that share a script.
func BenchmarkScript(b *testing.B) {
	addr, _ := proc.Redis(b)
	for _, calls := range []int{1, 8, maxKeys} {
		b.Run(fmt.Sprint(calls, "_calls"), func(b *testing.B) {
			s, err := New(Options{Addrs: []string{addr}, ReadTimeout: 10 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close() //nolint:errcheck // the server goes next
			limit := backend.Limit{Requests: 1e8, Period: time.Minute, Burst: 1e8}
			before := cpu(b, s)
			b.ResetTimer()
			for range b.N {
				var parts []*part
				for range calls {
					p := newPart(make([]backend.Decision, 1))
					p.add(0, "rl1:{5:bench}:api_key=k"+strconv.Itoa(rand.IntN(100_000))+":route", &backend.Take{Limit: limit, Hits: 1})
					parts = append(parts, p)
				}
				if _, err := s.run(b.Context(), parts); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64((cpu(b, s)-before).Nanoseconds())/float64(b.N*calls), "redis-ns/take")
		})
	}
}

// cpu is what the server's process has used up to now.
func cpu(b *testing.B, s *Store) time.Duration {
	b.Helper()
	info := s.client.Info(context.Background(), "cpu").Val()
	var sum float64
	for _, m := range regexp.MustCompile(`(?m)^used_cpu_(?:sys|user):([0-9.]+)`).FindAllStringSubmatch(info, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += n
	}
	return time.Duration(sum * float64(time.Second))
}
