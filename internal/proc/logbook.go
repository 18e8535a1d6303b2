package proc

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
)

// logbook is the log of one process, in a file and in memory. mu guards all its fields.
type logbook struct {
	mu     sync.Mutex
	file   *os.File
	text   strings.Builder
	more   chan struct{} // closed and replaced whenever text grows or the log ends
	closed bool
}

func newLogbook(file *os.File) *logbook {
	return &logbook{file: file, more: make(chan struct{})}
}

// Write takes what the process wrote and wakes those who wait for it.
func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	l.wakeLocked()
	return l.file.Write(b)
}

func (l *logbook) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wakeLocked()
	l.file.Close() //nolint:errcheck // the copy in memory is what tests read
}

func (l *logbook) wakeLocked() {
	close(l.more)
	l.more = make(chan struct{})
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// tail returns the last n bytes at most.
func (l *logbook) tail(n int) string {
	s := l.String()
	return s[max(0, len(s)-n):]
}

// wait returns the first line that matches, now or later.
func (l *logbook) wait(ctx context.Context, re string) (string, error) {
	line, err := regexp.Compile("(?m)^.*?(?:" + re + ").*$")
	if err != nil {
		return "", err
	}
	for {
		l.mu.Lock()
		text, more, closed := l.text.String(), l.more, l.closed
		l.mu.Unlock()
		if found := line.FindString(text); found != "" {
			return found, nil
		}
		if closed {
			return "", errors.New("the process ended")
		}
		select {
		case <-more:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}
