package leak

import (
	"strings"
	"testing"
	"time"
)

func blocked(begun chan<- struct{}, release <-chan struct{}) {
	begun <- struct{}{}
	<-release
}

func TestWait(t *testing.T) {
	code := []string{"/nowhere.", "leak.blocked"}
	begun, release := make(chan struct{}), make(chan struct{})
	go blocked(begun, release)
	<-begun
	if left := wait(10*time.Millisecond, code); strings.Count(left, "leak.blocked(") != 1 {
		t.Errorf("wait found %q, want the goroutine that is blocked", left)
	}
	close(release)
	if left := wait(5*time.Second, code); left != "" {
		t.Errorf("wait found %q after it ended", left)
	}
}
