package failover_test

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails the tests that leave a goroutine behind.
func TestMain(m *testing.M) {
	if m.Run() != 0 {
		return
	}
	left := ""
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if left = leaked(); left == "" {
			return
		}
	}
	panic("goroutines are left after the tests:\n" + left)
}

// leaked returns the stacks of goroutines of this package.
func leaked() string {
	buffer := make([]byte, 1<<20)
	var left []string
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if strings.Contains(stack, "main_test.go") {
			continue
		}
		if strings.Contains(stack, "/failover.") {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}
