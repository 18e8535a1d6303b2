package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lateRedis answers from some time on; never if 0.
func lateRedis(from time.Duration) *redisLink {
	start := time.Now()
	return &redisLink{
		log: slog.New(slog.DiscardHandler), open: func() bool { return false },
		probe: func(context.Context) error {
			if from == 0 || time.Since(start) < from {
				return errors.New("connection refused")
			}
			return nil
		},
	}
}

// A process that was started first is ready soon after Redis is there, however long that
// takes.
func TestTheFirstContactIsSeenSoon(t *testing.T) {
	for _, from := range []time.Duration{time.Nanosecond, time.Second, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			l, start := lateRedis(from), time.Now()
			if l.ready() == nil {
				t.Error("it is ready before anything was asked")
			}
			if err := l.run(t.Context()); err != nil || l.ready() != nil {
				t.Errorf("run: %v, ready: %v", err, l.ready())
			}
			if took := time.Since(start); took > from+askMost {
				t.Errorf("it took %v to see a Redis that is there after %v", took, from)
			}
		})
	}
}

// START=fail-fast waits as long as START_TIMEOUT says, no longer and no less.
func TestPatienceIsStated(t *testing.T) {
	for _, patience := range []time.Duration{time.Millisecond, 700 * time.Millisecond, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l, start := lateRedis(0), time.Now()
			l.patience = patience
			err := l.run(t.Context())
			if err == nil || !strings.Contains(err.Error(), "START_TIMEOUT: connection refused") {
				t.Errorf("run: %v, want the setting and the reason", err)
			}
			if took := time.Since(start); took != patience {
				t.Errorf("it gave up after %v, want %v", took, patience)
			}
		})
	}
}

func TestWaitingEndsWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var lines strings.Builder
		l := lateRedis(0)
		l.log = slog.New(slog.NewTextHandler(&lines, nil))
		if err := l.run(ctx); err != nil {
			t.Errorf("run: %v, want nil: nobody asked it to fail", err)
		}
		if n := strings.Count(lines.String(), "waiting for Redis"); n < 60 || n > 80 {
			t.Errorf("%d lines in the log of an hour, want about one a minute", n)
		}
	})
}
