package wire_test

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails if the tests leave a goroutine of the server's behind.
func TestMain(m *testing.M) {
	if code := m.Run(); code != 0 {
		return // the testing package exits with the code
	}
	if left := leaked(); left != "" {
		panic("goroutines are left:\n\n" + left)
	}
}

// leaked lists the goroutines in this package's code, waiting for a while for them to end.
func leaked() string {
	deadline := time.NewTimer(5 * time.Second)
	defer deadline.Stop()
	for {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		var left []string
		for g := range strings.SplitSeq(string(buf), "\n\n") {
			if strings.Contains(g, "rls/wire.") && !strings.Contains(g, "wire_test.TestMain") {
				left = append(left, g)
			}
		}
		if len(left) == 0 {
			return ""
		}
		select {
		case <-deadline.C:
			return strings.Join(left, "\n\n")
		default:
			runtime.Gosched()
		}
	}
}
