package rls_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls"
)

// atOnce is a store that never waits.
type atOnce struct{ backend.Store }

// TakeNow is part of rls.Immediate.
func (s atOnce) TakeNow(takes []backend.Take, dst []backend.Decision) (bool, error) {
	return true, s.Take(nil, takes, dst) //nolint:staticcheck // the memory store looks at no context
}

var _ rls.Immediate = atOnce{}

// immediate is a service of the answers' rules over the memory store.
func immediate(tb testing.TB, opts rls.Options) *rls.Service {
	tb.Helper()
	rules := load(tb, answers)
	return rls.New(atOnce{memstore.New(memstore.Options{})}, func() *descriptors.Rules { return rules }, opts)
}

// encode is a call's message.
func encode(tb testing.TB, call string) []byte {
	tb.Helper()
	data, err := proto.Marshal(parseCall(tb, call))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestACallOnTheMemoryStoreAllocatesNothing(t *testing.T) {
	named := &rls.HeaderNames{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}
	for _, call := range []string{
		"shop: wide=x",
		"shop: wide=x & long=y",
		"shop: plain=x", // denied from the second one on
		"shop: fixed=x",
		"shop: banned=x",
		"shop: none=x",
		"nowhere: plain=x",
	} {
		s := immediate(t, rls.Options{Headers: named})
		data := encode(t, call)
		reply := make([]byte, 0, 1024)
		one := func() {
			got, rest, err := s.Begin(data, reply)
			if rest != nil || err != nil || len(got) == 0 {
				t.Fatalf("Begin(%s) = %d bytes, %v, %v", call, len(got), rest, err)
			}
		}
		one()
		if n := testing.AllocsPerRun(200, one); n > 0 && !raceEnabled {
			t.Errorf("%s: %v allocations a call, want 0", call, n)
		}
	}
}

func BenchmarkBegin(b *testing.B) {
	for _, bm := range []struct{ name, call string }{
		{"allowed", "shop: wide=x"},
		{"denied", "shop: plain=x"},
		{"two", "shop: wide=x & long=y"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			s := immediate(b, rls.Options{})
			data := encode(b, bm.call)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				reply := make([]byte, 0, 1024)
				for pb.Next() {
					if _, rest, err := s.Begin(data, reply); rest != nil || err != nil {
						b.Fatal(rest, err)
					}
				}
			})
		})
	}
}
