//go:build integration && long

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-rls/sluice/internal/proc"
)

const (
	// memoryLimit is GOMEMLIMIT of the tests here, in MiB. The process takes some more: the
	// program itself, and what the runtime does not count.
	memoryLimit = 300
	// distinctKeys is how many clients come, and keysPerCall how many of them in one call.
	distinctKeys, keysPerCall = 10_000_000, 100
)

// R86: the bound holds, and the limits with it.
// Ten million clients do not make the process larger than GOMEMLIMIT says, and the limit of
// those who have used theirs up holds.
func TestMemoryOfTheEmbeddedStore(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			f := newFlood(t, settings{"GRPC_ENGINE": engine})
			f.drain()
			f.pour(0, distinctKeys)
			f.isBounded()
			if n := f.s.metric(t, "ratelimit_memory_evictions_total"); n < distinctKeys/2 {
				t.Errorf("%v buckets are counted as evicted, want most of %d", n, distinctKeys)
			}
		})
	}
}

// With Redis it is the same, while it answers, with tokens fetched ahead, and while it is
// away, with local shares.
func TestMemoryWithRedis(t *testing.T) {
	redis, p := proc.Redis(t, "--maxmemory", "400mb", "--maxmemory-policy", "volatile-ttl")
	f := newFlood(t, settings{"REDIS_URL": redis, "PREFETCH": "auto", "REDIS_BUDGET": "1s", "INSTANCES": "3", "GRPC_ENGINE": "lean"})
	f.drain()
	const shared = distinctKeys / 10
	f.pour(0, shared)
	f.isBounded()
	p.Signal(syscall.SIGSTOP)
	f.pour(shared, distinctKeys)
	f.isBounded()
	if n := f.s.metric(t, "ratelimit_local_evictions_total"); n < distinctKeys/2 {
		t.Errorf("%v local buckets are counted as evicted, want most of %d", n, distinctKeys-shared)
	}
	p.Signal(syscall.SIGCONT)
}

// flood is an instance to which very many clients come.
type flood struct {
	t       *testing.T
	s       *sluice
	clients []rlsv3.RateLimitServiceClient
}

func newFlood(t *testing.T, env settings) *flood {
	t.Helper()
	rules := t.TempDir()
	text := `
domain: edge
descriptors:
  - key: client
    rate_limit: {unit: day, requests_per_unit: 100}
  - key: logged
    rate_limit: {unit: day, requests_per_unit: 100, algorithm: sliding_log}
`
	if err := os.WriteFile(filepath.Join(rules, "edge.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env["GOMEMLIMIT"] = fmt.Sprintf("%dMiB", memoryLimit)
	f := &flood{t: t, s: startSluice(t, rules, env)}
	for range 4 {
		f.clients = append(f.clients, f.s.client(t))
	}
	return f
}

// drained is how many clients have used their limit up.
const drained = 20

// passes reports whether the i-th drained client passes.
func (f *flood) passes(i int) bool {
	f.t.Helper()
	key := []string{"client", "logged"}[i%2]
	response := ask(f.t, f.clients[0], edgeRequest(descriptor(key, fmt.Sprint("drained", i))))
	return response.GetOverallCode() == rlsv3.RateLimitResponse_OK
}

// drain uses some clients' limits up.
func (f *flood) drain() {
	f.t.Helper()
	for i := range drained {
		for n := range 100 {
			if !f.passes(i) {
				f.t.Fatalf("call %d of client %d was denied", n, i)
			}
		}
	}
}

// pour lets the clients of these numbers call once, each a new one. Those that were drained
// call meanwhile, and are denied.
func (f *flood) pour(from, to int) {
	f.t.Helper()
	var next, denied atomic.Int64
	next.Store(int64(from))
	var pouring sync.WaitGroup
	for _, c := range f.clients {
		pouring.Go(func() {
			for {
				first := int(next.Add(keysPerCall)) - keysPerCall
				if first >= to {
					return
				}
				request := edgeRequest()
				for n := first; n < first+keysPerCall; n++ {
					key := "client"
					if n%2 == 1 {
						key = "logged"
					}
					request.Descriptors = append(request.Descriptors, descriptor(key, strconv.Itoa(n)))
				}
				if ask(f.t, c, request).GetOverallCode() != rlsv3.RateLimitResponse_OK {
					f.t.Errorf("new clients from %d on were denied", first)
					return
				}
				if first%10_000 == 0 {
					if f.passes(first / 10_000 % drained) {
						f.t.Errorf("a client that had used its limit up passed when %d others had come", first)
						return
					}
					denied.Add(1)
				}
			}
		})
	}
	pouring.Wait()
	if denied.Load() < int64(to-from)/20_000 {
		f.t.Errorf("drained clients were denied %d times only: the test shows nothing", denied.Load())
	}
}

// isBounded checks the most memory that the process ever had.
func (f *flood) isBounded() {
	f.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.s.Pid()))
	if err != nil {
		f.t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(status), "VmHWM:")
	kibs, err := strconv.Atoi(strings.Fields(after + " -")[0])
	if !ok || err != nil {
		f.t.Fatalf("no VmHWM in %s", status)
	}
	f.t.Logf("the process took %d MiB at most, of a limit of %d", kibs>>10, memoryLimit)
	if kibs>>10 > memoryLimit*115/100 {
		f.t.Errorf("the process took %d MiB, want %d and some for the program at most", kibs>>10, memoryLimit)
	}
}
