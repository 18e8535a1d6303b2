package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// EnvoyOptions says which Envoy to start. Config is required.
type EnvoyOptions struct {
	// Name is the name of the log; "envoy" if empty.
	Name string
	// Config is the path of the configuration.
	Config string
	// Admin is the host:port of the configuration's admin listener. If it is empty,
	// Envoy counts as ready once Ready has no complaint, and has no statistics.
	Admin string
	// Ready is asked instead of the admin listener if Admin is empty.
	Ready func(ctx context.Context) error
}

// Envoy is a running Envoy.
type Envoy struct {
	*Process
	admin string
}

// StartEnvoy starts the real Envoy with two worker threads and returns once its
// listeners accept.
func StartEnvoy(tb testing.TB, o EnvoyOptions) *Envoy {
	tb.Helper()
	if o.Name == "" {
		o.Name = "envoy"
	}
	ready := o.Ready
	if o.Admin != "" {
		ready = Answers("http://" + o.Admin + "/ready")
	}
	return &Envoy{
		Process: Start(tb, Options{
			Name: o.Name,
			Path: Find(tb, "envoy"),
			// Hot restart shares memory and sockets by a number that all Envoys of a
			// machine must agree on; tests start many and restart none.
			Args:  []string{"-c", o.Config, "--disable-hot-restart", "--concurrency", "2", "--log-level", "warning"},
			Ready: ready,
		}),
		admin: o.Admin,
	}
}

// Stats returns the counters and gauges whose whole name matches the regular expression.
// Envoy makes some of them at their first use, so one that is missing is zero.
func (e *Envoy) Stats(name string) map[string]int64 {
	e.tb.Helper()
	ctx, cancel := patient(e.tb)
	defer cancel()
	stats, err := e.stats(ctx, name)
	if err != nil {
		e.tb.Fatalf("reading the statistics of %s: %v", e.name, err)
	}
	return stats
}

// Stat returns the counter or gauge of that very name.
func (e *Envoy) Stat(name string) int64 {
	e.tb.Helper()
	return e.Stats(regexp.QuoteMeta(name))[name]
}

// WaitStats waits until done is content with the statistics that match.
func (e *Envoy) WaitStats(name string, done func(map[string]int64) bool) {
	e.tb.Helper()
	ctx, cancel := patient(e.tb)
	defer cancel()
	err := e.poll(ctx, "waiting for statistics "+name, func(ctx context.Context) error {
		stats, err := e.stats(ctx, name)
		if err == nil && !done(stats) {
			err = fmt.Errorf("they are %v", stats)
		}
		return err
	})
	if err != nil {
		e.tb.Fatal(err)
	}
}

func (e *Envoy) stats(ctx context.Context, name string) (map[string]int64, error) {
	body, err := get(ctx, "http://"+e.admin+"/stats?filter="+url.QueryEscape("^(?:"+name+")$"))
	if err != nil {
		return nil, err
	}
	stats := map[string]int64{}
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), ": ")
		if !ok {
			continue
		}
		// Histograms and texts have no single number.
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			stats[name] = n
		}
	}
	return stats, nil
}

// Answers returns a readiness check: a GET of the URL has to be answered by 200.
func Answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := get(ctx, url)
		return err
	}
}

// get returns the body of an answer 200.
func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	// A connection of its own each time leaves none open behind the test.
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return string(body), nil
}
