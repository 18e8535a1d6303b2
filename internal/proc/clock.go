package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// RedisOnClock is Redis with a clock that can be set: turn makes it differ from the true
// one by so much. It needs Debian's libfaketime, at SLUICE_LIBFAKETIME, where the package
// puts it, or unpacked below .cache/faketime; without it the test is skipped.
func RedisOnClock(tb testing.TB) (addr string, turn func(time.Duration)) {
	tb.Helper()
	library := findFaketime()
	if library == "" {
		if ci, _ := os.LookupEnv("CI"); ci == "true" {
			tb.Fatal("no libfaketime: scripts/tools.sh fetches it")
		}
		tb.Skip("no libfaketime: set SLUICE_LIBFAKETIME to its path, or install it")
	}
	file := filepath.Join(tb.TempDir(), "clock")
	turn = func(d time.Duration) {
		tb.Helper()
		// Written beside and renamed, so that the server never reads half of it.
		text := fmt.Sprintf("%+.3f", d.Seconds())
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			tb.Error(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			tb.Error(err)
		}
	}
	turn(0)
	for attempt := 1; ; attempt++ {
		// The C library comes before jemalloc, which asks for the time before the other library
		// is ready to say it.
		addr, _, err := redisOn(tb, FreePort(tb), []string{
			"LD_PRELOAD=" + library + ":libc.so.6", "FAKETIME_TIMESTAMP_FILE=" + file, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
		})
		if err == nil {
			return addr, turn
		}
		if attempt == attempts {
			tb.Fatal(err)
		}
	}
}

// findFaketime is the path of the library, empty without it.
func findFaketime() string {
	if path, ok := os.LookupEnv("SLUICE_LIBFAKETIME"); ok && path != "" {
		return path
	}
	const name = "usr/lib/*/faketime/libfaketime.so.1"
	patterns := []string{filepath.Join("/", name)}
	if root, err := moduleRoot(); err == nil {
		patterns = append(patterns, filepath.Join(root, ".cache", "faketime", name))
	}
	for _, pattern := range patterns {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return ""
}
