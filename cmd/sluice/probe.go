package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// probe asks a running service for its health: what a container without a shell and curl
// has for a health check. It asks over HTTP, which has no TLS whatever the gRPC port has. It
// exits with 0 if the service says that it is well.
func probe(ctx context.Context, args []string, e env) int {
	f := flag.NewFlagSet("probe", flag.ContinueOnError)
	f.SetOutput(e.stderr)
	url := f.String("url", "http://localhost:"+e.or("PORT", "8080")+"/healthcheck", "the page to ask; /readyz says whether rules and store are there")
	timeout := f.Duration("timeout", time.Second, "the longest to wait for the answer")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	if err := ask(ctx, *url); err != nil {
		_, _ = fmt.Fprintf(e.stderr, "sluice probe: %v\n", err)
		return exitError
	}
	return exitOK
}

// ask reads a page; any status but 200 is an error with what the page says.
func ask(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return fmt.Errorf("reading %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
