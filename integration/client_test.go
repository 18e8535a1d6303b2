//go:build integration

package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// client sends HTTP requests over connections of its own.
type client struct {
	t    *testing.T
	http *http.Client
}

func newClient(t *testing.T) *client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, http: &http.Client{Transport: transport, Timeout: patience}}
}

// answer is what a client sees of a response.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request; headers are names and values in turn.
func (c *client) do(method, url string, headers ...string) (answer, error) {
	return c.doWithBody(method, url, "", headers...)
}

func (c *client) doWithBody(method, url, content string, headers ...string) (answer, error) {
	request, err := http.NewRequestWithContext(c.t.Context(), method, url, strings.NewReader(content))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header[http.CanonicalHeaderKey(headers[i])] = []string{headers[i+1]}
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body)}, errors.Join(err, response.Body.Close())
}

// send is do for requests that have to be answered.
func (c *client) send(method, url string, headers ...string) answer {
	c.t.Helper()
	a, err := c.do(method, url, headers...)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// limits returns what the answer says about limits, missing headers as "-".
func (a answer) limits() string {
	parts := []string{strconv.Itoa(a.status)}
	for _, name := range []string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after", "x-envoy-ratelimited"} {
		values := a.header.Values(name)
		switch len(values) {
		case 0:
			parts = append(parts, "-")
		case 1:
			parts = append(parts, values[0])
		default:
			parts = append(parts, fmt.Sprintf("%d times: %q", len(values), values))
		}
	}
	return strings.Join(parts, " | ")
}

// tally is how many of some requests passed.
type tally struct {
	passed, limited int
	// elapsed is from before the first request to after the last one.
	elapsed time.Duration
	// denial is the last answer that was no pass.
	denial answer
}

// drain sends equal requests one after another, n at least and until enough were limited
// to tell; any answer but 200 and 429 ends the test.
func (c *client) drain(n int, method, url string, headers ...string) tally {
	c.t.Helper()
	var all tally
	start := time.Now()
	for i := 0; i < n || all.limited < 10 && i < 20*n; i++ {
		a := c.send(method, url, headers...)
		switch a.status {
		case http.StatusOK:
			all.passed++
		case http.StatusTooManyRequests:
			all.limited++
			all.denial = a
		default:
			c.t.Fatalf("%s %s: status %d: %s", method, url, a.status, a.body)
		}
	}
	all.elapsed = time.Since(start)
	return all
}

// obeys checks that as many passed as a full bucket lets through: all its tokens, and no
// more than came back meanwhile.
func (all tally) obeys(t *testing.T, burst int, perSecond float64) {
	t.Helper()
	most := float64(burst) + perSecond*all.elapsed.Seconds()
	if err := within("passed", float64(all.passed), float64(burst), most); err != nil || all.limited == 0 {
		t.Errorf("in %v %d passed and %d were limited, want at least %d and at most %.1f to pass, the others limited",
			all.elapsed, all.passed, all.limited, burst, most)
	}
}
