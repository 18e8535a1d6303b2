package admin_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-rls/sluice/admin"
	"github.com/sluice-rls/sluice/descriptors"
)

// echo is a decider that answers what it was told to, with the request.
type echo struct{ code int }

func (e echo) DecideJSON(_ context.Context, body []byte) (int, []byte) { return e.code, body }

// page is what a request got.
type page struct {
	code        int
	contentType string
	body        string
}

func ask(t *testing.T, h http.Handler, method, path string, body io.Reader) page {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, body))
	return page{w.Code, w.Header().Get("Content-Type"), w.Body.String()}
}

const plain = "text/plain; charset=utf-8"

func TestPublicPages(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "apples_total", Help: "Apples."})
	reg.MustRegister(c)
	var unhealthy error
	parts := []admin.Part{{Name: "rules", OK: true}}
	decider := &echo{http.StatusOK}
	h := admin.New(admin.Options{
		Decider:  decider,
		Healthy:  func() error { return unhealthy },
		Ready:    func() []admin.Part { return parts },
		Gatherer: reg,
	})
	f := func(method, path, body string, want page) {
		t.Helper()
		if got := ask(t, h, method, path, strings.NewReader(body)); got != want {
			t.Errorf("%s %s = %+v, want %+v", method, path, got, want)
		}
	}
	f("GET", "/healthcheck", "", page{200, plain, "OK"})
	f("GET", "/livez", "", page{200, plain, "OK"})
	f("GET", "/readyz", "", page{200, "application/json", `{"ready":true,"parts":[{"name":"rules","ok":true}]}`})
	f("POST", "/json", `{"a":1}`, page{200, "application/json", `{"a":1}`})
	f("PUT", "/json", `{"a":1}`, page{200, "application/json", `{"a":1}`})
	decider.code = http.StatusTooManyRequests
	f("POST", "/json", `{"a":1}`, page{429, "application/json", `{"a":1}`})
	decider.code = http.StatusBadRequest
	f("POST", "/json", "why\n", page{400, plain, "why\n"})
	unhealthy = errors.New("no domain is in force")
	parts = append(parts, admin.Part{Name: "redis", Detail: "no answer"})
	f("GET", "/healthcheck", "", page{500, plain, "no domain is in force\n"})
	f("GET", "/livez", "", page{200, plain, "OK"})
	f("GET", "/readyz", "", page{503, "application/json", `{"ready":false,"parts":[{"name":"rules","ok":true},{"name":"redis","ok":false,"detail":"no answer"}]}`})
	if got := ask(t, h, "POST", "/json", strings.NewReader(strings.Repeat("x", 4<<20+1))); got.code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over 4 MiB = %d", got.code)
	}
	if got := ask(t, h, "GET", "/metrics", nil); got.code != 200 || !strings.Contains(got.body, "apples_total 0") {
		t.Errorf("/metrics = %+v", got)
	}
	if got := ask(t, h, "GET", "/debug/pprof/", nil); got.code != http.StatusNotFound {
		t.Errorf("profiles on the public address = %d", got.code)
	}
}

func TestDebugPages(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "apples_total", Help: "Apples."})
	reg.MustRegister(c)
	loader := descriptors.NewLoader(descriptors.Options{})
	rules, _ := loader.Load(nil)
	h := admin.NewDebug(admin.DebugOptions{Rules: func() *descriptors.Rules { return rules }, Gatherer: reg})
	f := func(path, want string) {
		t.Helper()
		got := ask(t, h, "GET", path, nil)
		if got.code != http.StatusOK || !strings.Contains(got.body, want) {
			t.Errorf("%s = %+v, want %q in it", path, got, want)
		}
	}
	f("/", "/rlconfig: the rules in force")
	f("/rlconfig", "# no rules are in force") // R33
	rules, problems := loader.Load([]descriptors.Source{{Name: "r.yaml", Data: []byte(`
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 10, burst: 3}}
  - {key: b, shadow_mode: true, rate_limit: {unlimited: true}}
`)}})
	for _, p := range problems {
		t.Error(p)
	}
	f("/rlconfig", "d > a: unit=MINUTE requests_per_unit=10 unit_multiplier=5 burst=3, shadow_mode: false, quota_mode: false\n"+
		"d > b: unlimited, shadow_mode: true, quota_mode: false\n")
	f("/stats", "apples_total 0")
	f("/debug/pprof/", "goroutine")
	f("/debug/pprof/cmdline", "")
	if got := ask(t, h, "GET", "/nothing", nil); got.code != http.StatusNotFound {
		t.Errorf("/nothing = %d", got.code)
	}
}
