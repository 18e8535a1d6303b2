package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// loadCase is one kind of traffic.
type loadCase struct {
	name, what string
	// keys is how many api keys there are; zipf, over 1, is the exponent of their
	// popularity, 0 for all alike.
	keys int
	zipf float64
	// routes are the descriptors of a call: one for each, over the key and the route.
	routes []string
	rate   float64 // calls a second; 0 is as many as are answered
	redis  bool    // the buckets are in Redis
	envoy  bool    // the calls are an Envoy's, which has 64 clients
	bars   []bar
}

var cases = []loadCase{
	{name: "hot", what: "one hot key, buckets in the process", keys: 1, routes: []string{"open"}, bars: []bar{cpuBar(0.30)}},
	{name: "redis-hot", what: "one hot key, buckets in Redis", keys: 1, routes: []string{"open"}, redis: true, bars: []bar{cpuBar(0.33)}},
	{name: "two", what: "two descriptors, hot", keys: 1, routes: []string{"open", "open-too"}, bars: []bar{cpuBar(0.40)}},
	{name: "denied", what: "one hot key, about 1 % admitted", keys: 1, routes: []string{"tight"}, bars: []bar{cpuBar(0.40)}},
	{name: "redis-zipf", what: "100 keys by Zipf's law (1.1), buckets in Redis", keys: 100, zipf: 1.1, routes: []string{"open"}, redis: true, bars: []bar{cpuBar(0.45)}},
	{name: "redis-uniform", what: "100,000 keys alike, buckets in Redis", keys: 100_000, routes: []string{"open"}, redis: true, bars: []bar{cpuBar(1.2), readsBar(0.2)}},
	{name: "paced", what: "one hot key, 5,000 calls a second", keys: 1, routes: []string{"open"}, rate: 5000, bars: []bar{cpuBar(0.75), latencyBar(50), latencyBar(99), latencyBar(99.9)}},
	{name: "envoy", what: "behind Envoy with 64 clients", keys: 1, routes: []string{"open"}, envoy: true, bars: []bar{slownessBar}},
}

// rules have a limit that nobody reaches for any key, one that nearly all of a saturating
// load is over, and one whose buckets take minutes to be full again, so that they stay.
const rules = `domain: bench
descriptors:
  - key: api_key
    descriptors:
      - {key: route, value: tight, rate_limit: {unit: second, requests_per_unit: 300}}
      - {key: route, value: slow, rate_limit: {unit: day, requests_per_unit: 1000}}
      - {key: route, rate_limit: {unit: minute, requests_per_unit: 100000000}}
`

func writeRules(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bench.yaml"), []byte(rules), 0o600)
}

// requests are the messages of a case, encoded before the run, one for each key.
func (c loadCase) requests() ([][]byte, error) {
	all := make([][]byte, c.keys)
	for key := range all {
		req := &rlsv3.RateLimitRequest{Domain: "bench"}
		for _, route := range c.routes {
			req.Descriptors = append(req.Descriptors, &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{
				{Key: "api_key", Value: "k" + strconv.Itoa(key)}, {Key: "route", Value: route},
			}})
		}
		var err error
		if all[key], err = proto.Marshal(req); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// picker gives the next key of a case.
func (c loadCase) picker() func() int {
	if c.zipf > 0 {
		z := rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), c.zipf, 1, uint64(c.keys-1))
		return func() int { return int(z.Uint64()) }
	}
	return func() int { return rand.IntN(c.keys) }
}

// variant is a server to measure.
type variant struct {
	name   string
	engine string // GRPC_ENGINE of a sluice
	redis  bool
}

var variants = []variant{
	{name: "echo"},
	{name: "grpc-go", engine: "grpc-go"},
	{name: "lean", engine: "lean"},
	{name: "grpc-go, Redis", engine: "grpc-go", redis: true},
	{name: "lean, Redis", engine: "lean", redis: true},
}

func (v variant) echo() bool { return v.engine == "" }
