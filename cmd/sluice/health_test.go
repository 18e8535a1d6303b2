package main

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-rls/sluice/admin"
)

// REDIS_HEALTH_CHECK_ACTIVE_CONNECTION: what Redis does is told within a moment.
func TestHealthFollowsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away, serving atomic.Bool
		h := &health{tell: serving.Store, depends: func() error {
			if away.Load() {
				return errRedisAway
			}
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go h.watch(ctx) //nolint:errcheck // it has none
		for _, is := range []bool{false, true, false} {
			away.Store(is)
			time.Sleep(2 * watchEvery)
			if serving.Load() == is || (h.err() != nil) != is {
				t.Errorf("serving is %v and the error %v while the store is away: %v", serving.Load(), h.err(), is)
			}
		}
	})
}

func TestHealthDoesNotAskTheStoreByDefault(t *testing.T) {
	serving := false
	h := &health{tell: func(s bool) { serving = s }, store: func() admin.Part { return part("redis", errNoContact) }}
	h.setRules(nil, "")
	if err := h.watch(t.Context()); err != nil || h.err() != nil || !serving {
		t.Errorf("watch: %v, error %v, serving %v, want a healthy process", err, h.err(), serving)
	}
}
