package main

import (
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/config"
	"github.com/sluice-rls/sluice/rls"
)

var fire = flag.Duration("fire", 3*time.Second, "how long TestReloadUnderFire runs")

// version is a rules file whose two rules carry the version in their names. Both are
// large enough to pass every call.
func versionFile(n int) config.File {
	const text = "domain: d\ndescriptors:\n" +
		"  - {key: a, rate_limit: {unit: second, requests_per_unit: 4294967295, name: v%d}}\n" +
		"  - {key: b, rate_limit: {unit: second, requests_per_unit: 4294967295, name: v%d}}\n"
	return config.File{Name: "d.yaml", Data: fmt.Appendf(nil, text, n, n)}
}

func hugeFile() config.File {
	var b strings.Builder
	b.WriteString("domain: huge\ndescriptors:\n")
	for i := range 2000 {
		fmt.Fprintf(&b, "  - {key: k, value: v%d, rate_limit: {unit: hour, requests_per_unit: 5}}\n", i)
	}
	return config.File{Name: "huge.yaml", Data: []byte(b.String())}
}

// Calls go on while the rules change every 50 ms, in every way: none fails, all
// descriptors of a call are decided by one version, a broken file leaves the last good
// rules, and rules that were replaced are freed.
func TestReloadUnderFire(t *testing.T) {
	reg := prometheus.NewRegistry()
	book := newRulebook(config.Settings{}, slog.New(slog.DiscardHandler), reg)
	service := rls.New(memstore.New(memstore.Options{}), book.rules, rls.Options{Registerer: reg})
	data, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*commonv3.RateLimitDescriptor{
		{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "a", Value: "1"}}},
		{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "b", Value: "1"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	book.apply([]config.File{versionFile(0)}, nil)

	var stop atomic.Bool
	var calls, gone atomic.Int64
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			for !stop.Load() {
				answer, err := service.Decide(t.Context(), data)
				if err != nil {
					t.Errorf("Decide = %v", err)
					return
				}
				calls.Add(1)
				runtime.Gosched()
				a, b := answer.GetStatuses()[0].GetCurrentLimit().GetName(), answer.GetStatuses()[1].GetCurrentLimit().GetName()
				if a != b || answer.GetOverallCode() != rlsv3.RateLimitResponse_OK {
					t.Errorf("one call saw %q and %q, %v", a, b, answer.GetOverallCode())
					return
				}
				if a == "" {
					gone.Add(1)
				}
			}
		})
	}

	loads, freed := 0, &atomic.Int64{}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(*fire); time.Now().Before(deadline); <-tick.C {
		loads++
		runtime.AddCleanup(book.rules(), func(n *atomic.Int64) { n.Add(1) }, freed)
		good, bad := versionFile(loads), config.File{Name: "d.yaml", Data: []byte("domain: d\noops: 1\n")}
		want := fmt.Sprintf("v%d", loads)
		switch loads % 6 {
		case 0:
			book.apply([]config.File{good}, nil)
		case 1: // broken: the version before stays
			book.apply([]config.File{bad}, nil)
			want = fmt.Sprintf("v%d", loads-1)
		case 2: // renamed
			good.Name = "renamed.yaml"
			book.apply([]config.File{good}, nil)
		case 3: // emptied
			book.apply(nil, nil)
			want = ""
		case 4: // huge beside it
			book.apply([]config.File{good, hugeFile()}, nil)
		case 5: // a broken one beside it
			bad.Name, bad.Data = "x.yaml", []byte("domain: x\ndescriptors: 7\n")
			book.apply([]config.File{good, bad}, nil)
		}
		answer, err := service.Decide(t.Context(), data)
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.GetStatuses()[0].GetCurrentLimit().GetName(); got != want {
			t.Errorf("load %d: version %q acts, want %q", loads, got, want)
		}
	}
	stop.Store(true)
	callers.Wait()
	t.Logf("%d calls over %d loads, %d of them without rules", calls.Load(), loads, gone.Load())
	if gone.Load() == 0 || gone.Load() == calls.Load() {
		t.Error("the calls did not meet the loads")
	}
	for range 10 {
		runtime.GC()
	}
	if n := freed.Load(); n < int64(loads)-3 {
		t.Errorf("%d of %d replaced rule sets were freed", n, loads)
	}
}
