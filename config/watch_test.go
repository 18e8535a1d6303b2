package config

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
)

// logLines is a log whose messages a test receives.
func logLines() (*slog.Logger, <-chan string) {
	lines := make(lineWriter, 100)
	return slog.New(slog.NewTextHandler(lines, nil)), lines
}

type lineWriter chan string

func (w lineWriter) Write(line []byte) (int, error) {
	w <- string(bytes.TrimSpace(line))
	return len(line), nil
}

// wantLine waits for a line of the log, which must be the next.
func (w *watching) wantLine(lines <-chan string, want string) {
	w.Helper()
	select {
	case line := <-lines:
		if !strings.Contains(line, want) {
			w.Errorf("log line %q, want %q", line, want)
		}
	case <-time.After(20 * time.Second):
		w.Errorf("no log line, want %q", want)
	}
}

// TestWithoutNotifications: looks in between find every kind of change, and the log
// says it once.
func TestWithoutNotifications(t *testing.T) {
	for name, start := range map[string]func() (notifier, error){
		"none to be had": func() (notifier, error) { return notifier{}, syscall.EMFILE },
		"no watches left": func() (notifier, error) {
			n, err := newNotifier()
			n.add = func(string) error { return syscall.ENOSPC }
			return n, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, lines := logLines()
			w := watchRules(t, "live/rules", FolderOptions{Poll: 20 * time.Millisecond, Log: log}, func(w *watching, f *Folder) {
				w.write("v1/rules/a.yaml", "1")
				w.write("v2/rules/a.yaml", "2")
				w.link("v1", "live")
				f.newNotifier = start
			})
			w.want("live/rules/a.yaml=1")
			w.wantLine(lines, "rules folder is not watched")
			w.write("v1/rules/a.yaml", "11")
			w.want("live/rules/a.yaml=11")
			w.write("v1/rules/s/b.yaml", "")
			w.want("live/rules/a.yaml=11 live/rules/s/b.yaml=")
			w.link("v2", "next")
			w.rename("next", "live")
			w.want("live/rules/a.yaml=2")
			w.remove("live")
			w.want(`error: reading rules "live/rules": no such file or directory`)
			w.link("v1", "live")
			w.want("live/rules/a.yaml=11 live/rules/s/b.yaml=")
			select {
			case line := <-lines:
				t.Errorf("log line %q, want no other", line)
			default:
			}
		})
	}
}

// TestNotificationsComeBack: what could not be watched is tried again, and works then.
func TestNotificationsComeBack(t *testing.T) {
	t.Parallel()
	log, lines := logLines()
	tries := 0
	w := watchRules(t, "rules", FolderOptions{Poll: 20 * time.Millisecond, Log: log}, func(w *watching, f *Folder) {
		w.write("rules/a.yaml", "1")
		f.newNotifier = func() (notifier, error) {
			if tries++; tries <= 3 {
				return notifier{}, errors.New("not now")
			}
			return newNotifier()
		}
	})
	w.want("rules/a.yaml=1")
	w.wantLine(lines, "not now")
	w.wantLine(lines, "rules folder is watched again")
	w.write("rules/a.yaml", "2")
	w.want("rules/a.yaml=2")
}

// TestReload: it reads at once, whatever else works.
func TestReload(t *testing.T) {
	t.Parallel()
	opts := FolderOptions{Quiet: time.Hour, Most: time.Hour}
	w := watchRules(t, "rules", opts, func(w *watching, f *Folder) {
		w.write("rules/a.yaml", "1")
		f.newNotifier = func() (notifier, error) { return notifier{}, syscall.EMFILE }
	})
	w.want("rules/a.yaml=1")
	w.write("rules/a.yaml", "2")
	w.reload <- struct{}{}
	w.want("rules/a.yaml=2")
}

// TestLostEvents: when notifications overflow, anything may have changed.
func TestLostEvents(t *testing.T) {
	t.Parallel()
	lost := make(chan error)
	w := watchRules(t, "rules", FolderOptions{}, func(w *watching, f *Folder) {
		w.write("rules/a.yaml", "1")
		f.newNotifier = func() (notifier, error) {
			events := make(chan fsnotify.Event)
			return notifier{
				events: events, errors: lost,
				add:   func(string) error { return nil },
				close: func() error { close(events); return nil },
			}, nil
		}
	})
	w.want("rules/a.yaml=1")
	w.write("rules/a.yaml", "2")
	lost <- fsnotify.ErrEventOverflow
	w.want("rules/a.yaml=2")
}

// TestStaleWatch: a folder that comes, goes or moves may leave the kernel watching what
// was there before, so nothing is covered until the watch is renewed.
func TestStaleWatch(t *testing.T) {
	dir := t.TempDir()
	events := make(chan fsnotify.Event)
	w := newWatch(func() (notifier, error) {
		return notifier{
			events: events,
			add:    func(string) error { return nil },
			close:  func() error { close(events); return nil },
		}, nil
	})
	defer w.stop()
	p := places{}
	p.all(dir)
	if err := w.renew(p); err != nil {
		t.Fatal(err)
	}
	f := func(name string, covered bool) {
		t.Helper()
		events <- fsnotify.Event{Name: name, Op: fsnotify.Remove}
		<-w.touched
		if got := w.covers(p); got != covered {
			t.Errorf("covers after an event of %q = %v, want %v", name, got, covered)
		}
	}
	f(dir+"/a.yaml", true)
	f(dir, false)
}

// TestFolderMadeWhileStarting: a subfolder that comes between the first look and the
// start of notifications is watched like the others.
func TestFolderMadeWhileStarting(t *testing.T) {
	t.Parallel()
	w := watchRules(t, "rules", FolderOptions{}, func(w *watching, f *Folder) {
		w.write("rules/a.yaml", "1")
		made := false
		f.newNotifier = func() (notifier, error) {
			n, err := newNotifier()
			add := n.add
			n.add = func(dir string) error {
				if dir == w.at("rules") && !made {
					made = true
					w.write("rules/s/b.yaml", "1")
				}
				return add(dir)
			}
			return n, err
		}
	})
	w.want("rules/a.yaml=1 rules/s/b.yaml=1")
	w.write("rules/s/b.yaml", "2")
	w.want("rules/a.yaml=1 rules/s/b.yaml=2")
}

// TestMoved: what a poll finds without reading, and what it reads to find out.
func TestMoved(t *testing.T) {
	w := &watching{T: t, root: t.TempDir()}
	w.write("rules/a.yaml", "1")
	folder := NewFolder(w.at("rules"), FolderOptions{})
	r := runner{folder: folder, watch: newWatch(func() (notifier, error) { return notifier{}, syscall.EMFILE })}
	f := func(want bool) {
		t.Helper()
		if got := r.moved(); got != want {
			t.Errorf("moved() = %v, want %v", got, want)
		}
	}
	read := func() { _, _ = folder.Read() }
	f(true) // nothing was read yet
	read()
	f(false)
	w.write("rules/a.yaml", "22")
	f(true)
	w.link("nowhere", "rules/b.yaml")
	read()
	f(true) // a file that failed may have healed
	w.remove("rules/b.yaml")
	read()
	f(false)
	w.rename("rules", "away")
	f(true)
	read()
	f(false)
	w.rename("away", "rules")
	f(true)
}

// TestMixture: what changes while it is read is not handed out.
func TestMixture(t *testing.T) {
	t.Parallel()
	w := &watching{T: t, root: t.TempDir()}
	w.write("rules/a.yaml", "")
	w.write("rules/b.yaml", "")
	w.do(os.Truncate(w.at("rules/a.yaml"), MaxFile)) // takes a while to read
	folder := NewFolder(w.at("rules"), FolderOptions{})
	calls := 0
	r := runner{
		folder: folder, watch: newWatch(func() (notifier, error) { return notifier{}, syscall.EMFILE }),
		changed: func([]File, error) { calls++ },
	}
	stop, stopped := make(chan struct{}), make(chan error)
	go func() { stopped <- scribble(w.at("rules/b.yaml"), stop) }()
	for end := time.Now().Add(20 * time.Second); ; {
		before := calls
		if !r.look(false) {
			if calls != before {
				t.Error("a look that was not done handed something out")
			}
			break
		}
		if time.Now().After(end) {
			t.Error("no look found the folder changing")
			break
		}
	}
	close(stop)
	w.do(<-stopped)
	if !r.look(false) || calls == 0 {
		t.Errorf("after the change: %d calls, want one at least", calls)
	}
}

// TestFollow: which folders a path depends on, and on which of their entries.
func TestFollow(t *testing.T) {
	w := &watching{T: t, root: t.TempDir()}
	w.write("v1/shop/rules/a.yaml", "1")
	w.link("../v1", "links/live")
	w.link(w.at("links/live"), "current")
	p := places{}
	actual, err := p.follow(w.at("current/shop/gone/rules"))
	if !errors.Is(err, os.ErrNotExist) || actual != w.at("v1/shop/gone") {
		t.Errorf("follow = %q, %v, want the first that is missing", actual, err)
	}
	got := map[string][]string{}
	for dir, place := range p {
		if below, ok := strings.CutPrefix(dir, w.root); ok {
			got[below] = slices.Sorted(maps.Keys(place.names))
		}
	}
	want := map[string][]string{"": {"current", "links", "v1"}, "/links": {"live"}, "/v1": {"shop"}, "/v1/shop": {"gone"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
}

// TestConcern: a busy folder on the way, such as the system's for temporary files, does
// not cause reads.
func TestConcern(t *testing.T) {
	p := places{
		"/":          {names: map[string]struct{}{"srv": {}}},
		"/srv":       {names: map[string]struct{}{"rules": {}}},
		"/srv/rules": {all: true, names: map[string]struct{}{}},
	}
	for _, test := range []struct {
		path            string
		matters, folder bool
	}{
		{"/srv/rules/a.yaml", true, false},
		{"/srv/rules/..data", true, false},
		{"/srv/rules", true, true},
		{"//srv", true, true},
		{"/srv/other", false, false},
		{"/srv/rules/sub/x", false, false},
		{"//etc", false, false},
	} {
		if matters, folder := p.concern(test.path); matters != test.matters || folder != test.folder {
			t.Errorf("concern(%q) = %v, %v, want %v, %v", test.path, matters, folder, test.matters, test.folder)
		}
	}
}
