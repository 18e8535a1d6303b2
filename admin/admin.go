// Package admin serves the HTTP pages: health, metrics and /json for everyone on one
// address, and what is for operators only (the rules in force, statistics, profiles) on
// another.
//
// It answers from what others know: rules from the descriptors, decisions from rls,
// metrics from a gatherer. It does not know which store is in use. Its handlers are
// safe for concurrent use and start no goroutine.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxBody is the largest body that /json reads, the same as gRPC's largest message.
const maxBody = 4 << 20

// Part is one thing that readiness depends on.
type Part struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Detail says what is wrong and, where it can, how to mend it.
	Detail string `json:"detail,omitempty"`
}

// Decider answers a call in JSON with an HTTP status: rls.Service.
type Decider interface {
	DecideJSON(ctx context.Context, body []byte) (code int, reply []byte)
}

// Options are what the public pages need; all fields are required.
type Options struct {
	Decider Decider
	// Healthy is what /healthcheck asks: an error makes it 500.
	Healthy func() error
	// Ready gives the parts of /readyz; all must be OK for a 200.
	Ready    func() []Part
	Gatherer prometheus.Gatherer
}

// New returns the handler of the public address.
func New(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthcheck", o.healthcheck)
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "OK") })
	mux.HandleFunc("/readyz", o.readyz)
	mux.HandleFunc("/json", o.json)
	mux.Handle("/metrics", Metrics(o.Gatherer))
	return mux
}

// Metrics returns the handler of the metrics alone, for an address of their own.
func Metrics(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

func (o *Options) healthcheck(w http.ResponseWriter, _ *http.Request) {
	if err := o.Healthy(); err != nil {
		writeText(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	writeText(w, http.StatusOK, "OK")
}

func (o *Options) readyz(w http.ResponseWriter, _ *http.Request) {
	page := struct {
		Ready bool   `json:"ready"`
		Parts []Part `json:"parts"`
	}{Ready: true, Parts: o.Ready()}
	code := http.StatusOK
	for _, p := range page.Parts {
		if !p.OK {
			page.Ready, code = false, http.StatusServiceUnavailable
		}
	}
	text, err := json.Marshal(page)
	if err != nil {
		writeText(w, http.StatusInternalServerError, "internal error\n")
		return
	}
	writeJSON(w, code, text)
}

// json answers a call: 200, 429, 400 for a request that can't be understood, with the
// reason.
func (o *Options) json(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		code := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			code = http.StatusRequestEntityTooLarge
		}
		writeText(w, code, "reading the request: "+err.Error()+"\n")
		return
	}
	code, reply := o.Decider.DecideJSON(r.Context(), body)
	if code == http.StatusOK || code == http.StatusTooManyRequests {
		writeJSON(w, code, reply)
		return
	}
	writeText(w, code, string(reply))
}

func writeText(w http.ResponseWriter, code int, text string) {
	write(w, code, "text/plain; charset=utf-8", []byte(text))
}

func writeJSON(w http.ResponseWriter, code int, text []byte) {
	write(w, code, "application/json", text)
}

func write(w http.ResponseWriter, code int, contentType string, text []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(text) // a client that left needs no answer
}
