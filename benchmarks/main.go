// Command benchmarks measures what a call costs the servers that answer it: sluice with
// each of its engines, and a bare grpc-go server that says OK to everything and does
// nothing else. The variants take turns within each round, so that they share what the
// machine does besides, and the ratios to the bare server are taken within the rounds. At
// the end stands what the lean engine may cost, and does.
//
//	cd benchmarks && go run . -rounds 5 -duration 10s
//
// CPU is what the operating system charged to the server's process (Linux's /proc), and to
// Redis where the buckets are there, over the calls that were answered meanwhile. Latency,
// of the cases with a rate, counts from the moment at which a call was due. Memory is that
// of the server's process at its highest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	rounds      int
	duration    time.Duration
	warmup      time.Duration
	cases       string
	variants    string
	binary      string
	conns       int
	inFlight    int
	keys        int
	connections int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	f := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	f.SetOutput(stderr)
	echo := f.String("echo", "", "serve the bare grpc-go server at this `address`, and measure nothing")
	f.IntVar(&o.rounds, "rounds", 5, "rounds; the table has the medians")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "measured time of each run")
	f.DurationVar(&o.warmup, "warmup", 2*time.Second, "time before it")
	f.StringVar(&o.cases, "cases", "", "names of the cases to run, with commas between (hot, redis-hot, two, denied, redis-zipf, redis-uniform, paced, envoy, memory); all if empty")
	f.StringVar(&o.variants, "variants", "", "engines to run beside echo, with commas between (grpc-go, lean); all if empty")
	f.StringVar(&o.binary, "sluice", "", "binary to measure; built from the checkout around this folder if empty")
	f.IntVar(&o.conns, "conns", 4, "connections")
	f.IntVar(&o.inFlight, "concurrency", 32, "calls in flight over all connections")
	f.IntVar(&o.keys, "keys", 100_000, "keys whose memory is measured")
	f.IntVar(&o.connections, "connections", 10_000, "idle connections whose memory is measured; each takes a file of both processes")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	var err error
	if *echo != "" {
		err = serveEcho(ctx, *echo)
	} else {
		err = measure(ctx, o, stdout, stderr)
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "benchmarks: %v\n", err)
		return 1
	}
	return 0
}

// measure runs the cases one after the other, and prints a table of each.
func measure(ctx context.Context, o options, stdout, stderr io.Writer) error {
	dir, err := os.MkdirTemp("", "benchmarks")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if o.binary == "" {
		o.binary = filepath.Join(dir, "sluice")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.binary, "./cmd/sluice")
		build.Dir, build.Stderr = "..", stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building sluice: %w", err)
		}
	}
	rules := filepath.Join(dir, "rules")
	if err := writeRules(rules); err != nil {
		return err
	}
	var all []verdict
	for _, c := range cases {
		if !chosen(o.cases, c.name) {
			continue
		}
		t, err := measureCase(ctx, o, c, rules, stderr)
		if err != nil {
			return err
		}
		t.print(stdout)
		all = append(all, t.verdicts()...)
	}
	if chosen(o.cases, "memory") {
		some, err := measureMemory(ctx, o, rules, stdout)
		if err != nil {
			return err
		}
		all = append(all, some...)
	}
	summary(stdout, all)
	return nil
}

// measureCase runs the variants of a case in turns.
func measureCase(ctx context.Context, o options, c loadCase, rules string, stderr io.Writer) (*table, error) {
	t := newTable(c)
	for round := range o.rounds {
		for _, v := range variants {
			if !v.echo() && (c.redis != v.redis || !chosen(o.variants, v.engine)) {
				continue
			}
			r, err := runOne(ctx, o, c, v, rules)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", c.name, v.name, err)
			}
			t.add(v.name, r)
			_, _ = fmt.Fprintf(stderr, "round %d of %d, %s, %s: %.1f µs\n", round+1, o.rounds, c.name, v.name, r.cpuMicros())
		}
	}
	return t, nil
}

// chosen reports whether a list with commas, or an empty one, names a name.
func chosen(list, name string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if part == name {
			return true
		}
	}
	return list == ""
}
