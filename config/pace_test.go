package config

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPace: when a folder is read, as a timeline. Times are from the start.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	type event struct {
		at   time.Duration
		what string // touch, reload, or move: a change that no touch tells
	}
	type look struct {
		At   time.Duration
		Last bool
	}
	every := func(step, from, to time.Duration) (events []event) {
		for at := from; at <= to; at += step {
			events = append(events, event{at, "touch"})
		}
		return events
	}
	for _, test := range []struct {
		name   string
		events []event
		busy   int // looks, from the first, that find the folder still changing
		until  time.Duration
		want   []look
	}{
		{name: "nothing happens, nothing is read", until: time.Minute},
		{name: "a change is read after a quiet time", events: []event{{50 * ms, "touch"}}, want: []look{{150 * ms, false}}},
		{
			name: "a burst is read once", events: []event{{0, "touch"}, {60 * ms, "touch"}, {150 * ms, "touch"}},
			want: []look{{250 * ms, false}},
		},
		{
			name: "two changes are read twice", events: []event{{0, "touch"}, {300 * ms, "touch"}},
			want: []look{{100 * ms, false}, {400 * ms, false}},
		},
		{
			name: "a change without end is read all the same", events: every(50*ms, 0, 1200*ms),
			want: []look{{500 * ms, true}, {1000 * ms, true}, {1300 * ms, false}},
		},
		{
			name: "a change that goes on is read when it is over", events: []event{{0, "touch"}}, busy: 2,
			want: []look{{100 * ms, false}, {200 * ms, false}, {300 * ms, false}},
		},
		{
			name: "one that goes on for ever is read for good at last", events: []event{{0, "touch"}}, busy: 9,
			want: []look{{100 * ms, false}, {200 * ms, false}, {300 * ms, false}, {400 * ms, false}, {500 * ms, true}},
		},
		{name: "a reload is at once", events: []event{{70 * ms, "reload"}}, want: []look{{70 * ms, true}}},
		{
			name: "a reload takes a waiting change along", events: []event{{0, "touch"}, {50 * ms, "reload"}},
			want: []look{{50 * ms, true}},
		},
		{
			name: "what no touch tells is found by the next poll", events: []event{{3 * time.Second, "move"}}, until: time.Minute,
			want: []look{{10*time.Second + 100*ms, false}},
		},
		{
			name: "a poll leaves a waiting change in peace", events: []event{{9950 * ms, "touch"}, {9960 * ms, "move"}}, until: time.Minute,
			want: []look{{10*time.Second + 50*ms, false}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				touched, reload := make(chan struct{}), make(chan struct{})
				var moved atomic.Bool
				var got []look
				p := pace{
					quiet: 100 * ms, most: 500 * ms, poll: 10 * time.Second,
					moved: moved.Load,
					look: func(last bool) bool {
						got = append(got, look{time.Since(start), last})
						moved.Store(false)
						test.busy--
						return last || test.busy < 0
					},
				}
				done := make(chan struct{})
				go func() { defer close(done); p.run(ctx, touched, reload) }()
				for _, e := range test.events {
					time.Sleep(e.at - time.Since(start))
					switch e.what {
					case "touch":
						touched <- struct{}{}
					case "reload":
						reload <- struct{}{}
					case "move":
						moved.Store(true)
					}
				}
				time.Sleep(test.until - time.Since(start) + 2*time.Second)
				cancel()
				<-done
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("looks (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestPaceClosedReload: a closed channel neither reloads nor spins.
func TestPaceClosedReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		reload := make(chan struct{})
		close(reload)
		p := pace{
			quiet: time.Second, most: time.Second, poll: time.Minute,
			moved: func() bool { return false },
			look:  func(bool) bool { t.Error("it looked"); return true },
		}
		p.run(ctx, nil, reload)
	})
}
