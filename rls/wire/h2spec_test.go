package wire_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sluice-rls/sluice/rls/wire"
)

// TestH2spec runs the conformance suite of github.com/summerwind/h2spec: generic, http2
// and hpack, and what it calls strict. All of it passes; whatever comes to fail has to be
// listed here with the sentence of the RFC that allows it.
func TestH2spec(t *testing.T) {
	if testing.Short() {
		t.Skip("h2spec takes seconds")
	}
	program := buildH2spec(t)
	srv := wire.New(wire.Options{
		Method: method, Handler: &echo{},
		Other: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such thing", http.StatusNotFound) }),
	})
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	defer func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	host, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "-h", host, "-p", port, "-o", "2", "-S").CombinedOutput()
	summary := regexp.MustCompile(`(\d+) tests, (\d+) passed, 0 skipped, 0 failed`).FindSubmatch(out)
	if err != nil || summary == nil || string(summary[1]) != string(summary[2]) {
		t.Errorf("h2spec: %v\n%s", err, out)
	}
}

// buildH2spec builds the suite, which is a tool of the module of the benchmarks. Without
// its sources the test skips at a desk, and fails in CI.
func buildH2spec(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "h2spec")
	build := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "build", "-o", program, "github.com/summerwind/h2spec/cmd/h2spec")
	build.Dir = filepath.Join("..", "..", "benchmarks")
	if out, err := build.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" { //nolint:forbidigo // where tests learn that nothing may be missing
			t.Fatalf("building h2spec: %v\n%s", err, out)
		}
		t.Skipf("h2spec cannot be built: %v\n%s", err, out)
	}
	return program
}
