// Package leak finds goroutines that tests leave behind.
package leak

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// Main runs the tests of a package, and panics if they pass and leave a goroutine that is in
// one of some pieces of code: parts of what a stack says of them, such as "/failover.". A
// goroutine has five seconds to end.
func Main(m *testing.M, code ...string) {
	if m.Run() != 0 {
		return // the testing package exits with the code
	}
	if left := wait(5*time.Second, code); left != "" {
		panic("goroutines are left after the tests:\n" + left)
	}
}

// wait returns the stacks of the goroutines that are left after some time; empty as soon as
// there are none.
func wait(patience time.Duration, code []string) (left string) {
	for end := time.Now().Add(patience); ; runtime.Gosched() {
		if left = find(code); left == "" || time.Now().After(end) {
			return left
		}
	}
}

// find returns the stacks of the goroutines that are in some pieces of code, but for the one
// that looks.
func find(code []string) string {
	buffer := make([]byte, 1<<20)
	var left []string
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if strings.Contains(stack, "leak.find(") {
			continue
		}
		for _, c := range code {
			if strings.Contains(stack, c) {
				left = append(left, stack)
				break
			}
		}
	}
	return strings.Join(left, "\n\n")
}
