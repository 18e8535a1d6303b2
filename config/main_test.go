package config

import (
	"flag"
	"runtime"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/settings.md anew")

// TestMain fails the run if a goroutine of the package or of a notifier outlives it.
func TestMain(m *testing.M) {
	if code := m.Run(); code != 0 {
		return // the testing package exits with the code
	}
	if left := leaked(); left != "" {
		panic("goroutines are left:\n\n" + left)
	}
}

// leaked is the stacks of what is left. It lets those run that are just ending.
func leaked() string {
	var left []string
	for range 1000 {
		left = left[:0]
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		for stack := range strings.SplitSeq(string(buf), "\n\n") {
			ours := strings.Contains(stack, "sluice/config.") || strings.Contains(stack, "fsnotify.")
			if ours && !strings.Contains(stack, "config.TestMain") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			break
		}
		runtime.Gosched()
	}
	return strings.Join(left, "\n\n")
}
