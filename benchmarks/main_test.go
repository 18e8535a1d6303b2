package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestMain is the bare server too: the command starts itself as that.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-echo" {
		main()
	}
	os.Exit(m.Run())
}

// Every case runs, with every variant, and what it measures is there: nobody judges figures
// of half a second.
func TestEveryCaseRuns(t *testing.T) {
	for _, program := range []string{"redis-server", "envoy"} {
		if _, err := find(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	var stdout, stderr bytes.Buffer
	args := []string{"-rounds", "1", "-duration", "500ms", "-warmup", "100ms", "-keys", "100", "-connections", "100"}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, stdout.Bytes(), stderr.Bytes())
	}
	_, summary, _ := strings.Cut(stdout.String(), "\nsummary")
	for _, c := range cases {
		if n := strings.Count(summary, c.what+": "); n != len(c.bars) {
			t.Errorf("%s: %d lines in the summary, want %d", c.name, n, len(c.bars))
		}
	}
	if n := strings.Count(summary, "memory of lean"); n != len(memoryCases) {
		t.Errorf("%d lines of memory, want %d", n, len(memoryCases))
	}
	if t.Failed() {
		t.Logf("%s", stdout.Bytes())
	}
}
