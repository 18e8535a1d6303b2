package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// memoryCase is something that takes memory of a server, which fill does.
type memoryCase struct {
	name  func(o options) string
	redis bool
	keys  bool    // that the bare server has none of
	most  float64 // MiB, for the lean engine
	fill  func(ctx context.Context, o options, s *stack) error
}

var memoryCases = []memoryCase{
	{name: idleName, most: 30, fill: beIdle},
	{name: idleName, most: 30, fill: beIdle, redis: true},
	{name: keysName, most: 60, fill: fillKeys, keys: true},
	{name: keysName, most: 60, fill: fillKeys, keys: true, redis: true},
	{
		name: func(o options) string { return strconv.Itoa(o.connections) + " idle connections" }, most: 200,
		fill: func(ctx context.Context, o options, s *stack) error {
			return holdConnections(ctx, s.server.addr, o.connections, func() error { return nil })
		},
	},
}

func idleName(options) string { return "idle" }

func keysName(o options) string { return strconv.Itoa(o.keys) + " keys" }

func beIdle(context.Context, options, *stack) error { return nil }

// measureMemory tells what memory each variant has taken at its highest.
func measureMemory(ctx context.Context, o options, rules string, stdout io.Writer) ([]verdict, error) {
	_, _ = fmt.Fprintf(stdout, "\nmemory: resident, at its highest\n")
	var all []verdict
	for _, c := range memoryCases {
		name := c.name(o)
		for _, v := range variants {
			if v.redis != c.redis || v.echo() && c.keys || !v.echo() && !chosen(o.variants, v.engine) {
				continue
			}
			bytes, err := fillOne(ctx, o, c, v, rules)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", name, v.name, err)
			}
			mebibytes := float64(bytes) / (1 << 20)
			_, _ = fmt.Fprintf(stdout, "%25s %15s  %4.0f MiB\n", name, v.name, mebibytes)
			if strings.HasPrefix(v.name, "lean") {
				all = append(all, verdict{"memory of " + v.name + ", " + name, mebibytes, c.most, " MiB"})
			}
		}
	}
	return all, nil
}

func fillOne(ctx context.Context, o options, c memoryCase, v variant, rules string) (int64, error) {
	s, err := startStack(ctx, o, v, rules)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	if err := c.fill(ctx, o, s); err != nil {
		return 0, err
	}
	return s.server.resident()
}

// fillKeys makes three calls for each key, and checks that there is a bucket for each.
func fillKeys(ctx context.Context, o options, s *stack) error {
	requests, err := loadCase{keys: o.keys, routes: []string{"slow"}}.requests()
	if err != nil {
		return err
	}
	callers, hangUp, err := dial(s.server.addr, o.conns, o.inFlight, requests)
	if err != nil {
		return err
	}
	defer hangUp()
	errs := make([]error, len(callers))
	var wg sync.WaitGroup
	for i, call := range callers {
		wg.Go(func() {
			for n := i; n < 3*len(requests); n += len(callers) {
				if _, err := call(ctx, n%len(requests)); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var buckets int64
	if s.redis != nil {
		buckets, err = redisNumber(ctx, s.redis.addr, "DBSIZE", ":")
	} else {
		buckets, err = s.metric(ctx, "ratelimit_memory_buckets ")
	}
	if err == nil && buckets < int64(len(requests)) {
		err = fmt.Errorf("%d buckets are there for %d keys", buckets, len(requests))
	}
	return err
}

// metric is the number that follows a text at the beginning of a line of the metrics.
func (s *stack) metric(ctx context.Context, before string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(page)) {
		if text, ok := strings.CutPrefix(line, before); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return int64(f), err
		}
	}
	return 0, fmt.Errorf("the metrics have no %s", before)
}
