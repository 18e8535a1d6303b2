package config

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A watching is a Run on a real folder.
type watching struct {
	*testing.T
	root   string
	calls  chan string // each call of changed, as one text
	reload chan struct{}
}

// watchRules runs a folder below a new root. Polls do not help it unless opts asks.
func watchRules(t *testing.T, path string, opts FolderOptions, prepare func(*watching, *Folder)) *watching {
	t.Helper()
	w := &watching{T: t, root: t.TempDir(), calls: make(chan string, 100), reload: make(chan struct{})}
	if opts.Poll == 0 {
		opts.Poll = time.Hour
	}
	f := NewFolder(filepath.Join(w.root, path), opts)
	if prepare != nil {
		prepare(w, f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- f.Run(ctx, w.reload, func(files []File, err error) { w.calls <- w.text(files, err) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return w
}

// text is a call of changed: name=content words, or the error; names are from the root.
func (w *watching) text(files []File, err error) string {
	if err != nil {
		return strings.ReplaceAll("error: "+err.Error(), w.root+"/", "")
	}
	words := make([]string, len(files))
	for i, f := range files {
		words[i] = strings.TrimPrefix(f.Name, w.root+"/") + "=" + string(f.Data)
		if f.Err != nil {
			words[i] = strings.ReplaceAll(f.Err.Error(), w.root+"/", "")
		}
	}
	return strings.Join(words, " ")
}

// do makes the change that fails the test if it fails.
func (w *watching) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *watching) at(name string) string { return filepath.Join(w.root, name) }

// write makes a file with its folders.
func (w *watching) write(name, content string) {
	w.Helper()
	w.do(os.MkdirAll(filepath.Dir(w.at(name)), 0o755))
	w.do(os.WriteFile(w.at(name), []byte(content), 0o644))
}

func (w *watching) link(target, name string) {
	w.Helper()
	w.do(os.MkdirAll(filepath.Dir(w.at(name)), 0o755))
	w.do(os.Symlink(target, w.at(name)))
}

func (w *watching) rename(from, to string) { w.Helper(); w.do(os.Rename(w.at(from), w.at(to))) }
func (w *watching) remove(name string)     { w.Helper(); w.do(os.RemoveAll(w.at(name))) }

// want waits for a call with this text, past any that a change made of several steps
// caused on its way there.
func (w *watching) want(text string) {
	w.Helper()
	w.wait(text, func(got string) bool { return got == text })
}

// wait waits for a call that is as wanted. New content is promised within a second.
func (w *watching) wait(what string, wanted func(text string) bool) {
	w.Helper()
	began := time.Now()
	late := time.After(20 * time.Second)
	var seen []string
	for {
		select {
		case got := <-w.calls:
			if wanted(got) {
				if took := time.Since(began); took > time.Second {
					w.Errorf("%q took %v, above a second", what, took)
				}
				return
			}
			seen = append(seen, got)
		case <-late:
			w.Fatalf("no call with %q, but with %q", what, seen)
		}
	}
}

// wantNothing has the folder read, and wants no call of it.
func (w *watching) wantNothing() {
	w.Helper()
	for range 2 { // the second is received when the look of the first is over
		w.reload <- struct{}{}
	}
	select {
	case got := <-w.calls:
		w.Errorf("call with %q, want none", got)
	default:
	}
}

// R28, R31: every way of changing the folder acts within a second, by default settings.
// TestRun: every way in which rules come to change is seen, with default settings and
// without a poll.
func TestRun(t *testing.T) {
	for _, test := range []struct {
		name    string
		path    string
		prepare func(w *watching)
		first   string
		change  func(w *watching)
	}{
		{
			name: "edit in place", path: "rules", first: "rules/a.yaml=1",
			prepare: func(w *watching) { w.write("rules/a.yaml", "1") },
			change: func(w *watching) {
				w.write("rules/a.yaml", "2")
				w.want("rules/a.yaml=2")
				w.write("rules/a.yaml", "3")
				w.want("rules/a.yaml=3")
			},
		},
		{
			name: "edit in place that leaves size and time as they were", path: "rules", first: "rules/a.yaml=1",
			prepare: func(w *watching) { w.write("rules/a.yaml", "1") },
			change: func(w *watching) {
				info, err := os.Stat(w.at("rules/a.yaml"))
				w.do(err)
				w.write("rules/a.yaml", "2")
				w.do(os.Chtimes(w.at("rules/a.yaml"), info.ModTime(), info.ModTime()))
				w.want("rules/a.yaml=2")
			},
		},
		{
			name: "rename over", path: "rules", first: "rules/a.yaml=1",
			prepare: func(w *watching) { w.write("rules/a.yaml", "1") },
			change: func(w *watching) {
				for _, content := range []string{"2", "3"} {
					w.write("rules/.a.tmp", content)
					w.rename("rules/.a.tmp", "rules/a.yaml")
					w.want("rules/a.yaml=" + content)
				}
			},
		},
		{
			name: "rename over from outside", path: "rules", first: "rules/a.yaml=1",
			prepare: func(w *watching) { w.write("rules/a.yaml", "1") },
			change: func(w *watching) {
				w.write("a.tmp", "2")
				w.rename("a.tmp", "rules/a.yaml")
				w.want("rules/a.yaml=2")
			},
		},
		{
			name: "delete and make anew", path: "rules", first: "rules/a.yaml=1",
			prepare: func(w *watching) { w.write("rules/a.yaml", "1") },
			change: func(w *watching) {
				w.remove("rules/a.yaml")
				w.want("")
				w.write("rules/a.yaml", "2")
				w.want("rules/a.yaml=2")
			},
		},
		{
			name: "new file, and one moved out", path: "rules", first: "",
			prepare: func(w *watching) { w.write("rules/notes.txt", "x") },
			change: func(w *watching) {
				w.write("rules/b.yaml", "2")
				w.want("rules/b.yaml=2")
				w.write("rules/a.yml", "1")
				w.want("rules/a.yml=1 rules/b.yaml=2")
				w.rename("rules/b.yaml", "b.yaml")
				w.want("rules/a.yml=1")
			},
		},
		{
			name: "subfolders come, change and go", path: "rules", first: "rules/a.yaml=1",
			prepare: func(w *watching) { w.write("rules/a.yaml", "1") },
			change: func(w *watching) {
				w.write("rules/s/t/b.yaml", "2")
				w.want("rules/a.yaml=1 rules/s/t/b.yaml=2")
				w.write("rules/s/t/b.yaml", "3")
				w.want("rules/a.yaml=1 rules/s/t/b.yaml=3")
				w.rename("rules/s", "rules/u")
				w.want("rules/a.yaml=1 rules/u/t/b.yaml=3")
				w.write("rules/u/t/b.yaml", "4")
				w.want("rules/a.yaml=1 rules/u/t/b.yaml=4")
				w.remove("rules/u")
				w.want("rules/a.yaml=1")
				w.write("rules/u/t/b.yaml", "5")
				w.want("rules/a.yaml=1 rules/u/t/b.yaml=5")
			},
		},
		{
			name: "a ConfigMap is updated", path: "rules", first: "rules/config.yaml=1",
			prepare: func(w *watching) {
				w.write("rules/..1/config.yaml", "1")
				w.link("..1", "rules/..data")
				w.link("..data/config.yaml", "rules/config.yaml")
			},
			change: func(w *watching) {
				for i := range 3 { // as the kubelet does it
					older, newer := fmt.Sprintf("rules/..%d", i+1), fmt.Sprintf("rules/..%d", i+2)
					w.write(newer+"/config.yaml", filepath.Base(newer))
					w.link(filepath.Base(newer), "rules/..data_tmp")
					w.rename("rules/..data_tmp", "rules/..data")
					w.remove(older)
					w.want("rules/config.yaml=" + filepath.Base(newer))
				}
			},
		},
		{
			name: "a link on the way is swapped", path: "current/shop/config", first: "current/shop/config/a.yaml=1",
			prepare: func(w *watching) {
				w.write("v1/shop/config/a.yaml", "1")
				w.write("v2/shop/config/a.yaml", "2")
				w.link("v1", "current")
			},
			change: func(w *watching) {
				w.link("v2", "next")
				w.rename("next", "current")
				w.want("current/shop/config/a.yaml=2")
				w.write("v2/shop/config/a.yaml", "3")
				w.want("current/shop/config/a.yaml=3")
				w.remove("current") // and the way of ln -sfn
				w.link(w.at("v1"), "current")
				w.want("current/shop/config/a.yaml=1")
				w.write("v1/shop/config/a.yaml", "4")
				w.want("current/shop/config/a.yaml=4")
			},
		},
		{
			name: "a link behind a link is swapped", path: "rules", first: "rules/a.yaml=1",
			prepare: func(w *watching) {
				w.write("v1/a.yaml", "1")
				w.write("v2/a.yaml", "2")
				w.link("../v1", "links/live")
				w.link("links/live", "rules")
			},
			change: func(w *watching) {
				w.link("../v2", "links/next")
				w.rename("links/next", "links/live")
				w.want("rules/a.yaml=2")
			},
		},
		{
			name: "a folder on the way is swapped for another", path: "live/config", first: "live/config/a.yaml=1",
			prepare: func(w *watching) {
				w.write("live/config/a.yaml", "1")
				w.write("next/config/a.yaml", "2")
			},
			change: func(w *watching) {
				w.rename("live", "last")
				w.rename("next", "live")
				w.want("live/config/a.yaml=2")
				w.write("live/config/a.yaml", "3")
				w.want("live/config/a.yaml=3")
			},
		},
		{
			name: "the folder is deleted and made anew", path: "rules", first: "rules/a.yaml=1",
			prepare: func(w *watching) { w.write("rules/a.yaml", "1") },
			change: func(w *watching) {
				for _, content := range []string{"2", "3"} {
					w.remove("rules")
					w.want(`error: reading rules "rules": no such file or directory`)
					w.write("rules/a.yaml", content)
					w.want("rules/a.yaml=" + content)
				}
				w.write("rules/a.yaml", "4")
				w.want("rules/a.yaml=4")
			},
		},
		{
			name: "the folder comes back as it was", path: "rules", first: "rules/a.yaml=1",
			prepare: func(w *watching) { w.write("rules/a.yaml", "1") },
			change: func(w *watching) {
				w.rename("rules", "away")
				w.want(`error: reading rules "rules": no such file or directory`)
				w.rename("away", "rules")
				w.want("rules/a.yaml=1")
			},
		},
		{
			name: "the folder is missing at first, and so is the way to it", path: "some/where/rules",
			first: `error: reading rules "some/where/rules": no such file or directory`,
			change: func(w *watching) {
				w.write("some/where/rules/a.yaml", "1")
				w.want("some/where/rules/a.yaml=1")
			},
		},
		{
			name: "files beside the folder", path: "config", first: "config/a.yaml=1",
			prepare: func(w *watching) { w.write("config/a.yaml", "1") },
			change: func(w *watching) {
				w.write("config.edge.yaml", "2")
				w.want("config.edge.yaml=2 config/a.yaml=1")
			},
		},
		{
			name: "one file", path: "etc/rules.conf", first: "etc/rules.conf=1",
			prepare: func(w *watching) { w.write("etc/rules.conf", "1") },
			change: func(w *watching) {
				w.write("etc/rules.conf", "2")
				w.want("etc/rules.conf=2")
				w.write("etc/tmp", "3")
				w.rename("etc/tmp", "etc/rules.conf")
				w.want("etc/rules.conf=3")
				w.remove("etc/rules.conf")
				w.want(`error: reading rules "etc/rules.conf": no such file or directory`)
				w.write("etc/rules.conf", "4")
				w.want("etc/rules.conf=4")
				w.write("v/a", "5")
				w.link("../v/a", "etc/next")
				w.rename("etc/next", "etc/rules.conf")
				w.want("etc/rules.conf=5")
				w.write("v/a", "6")
				w.want("etc/rules.conf=6")
			},
		},
		{
			name: "files and folders behind links", path: "rules", first: "rules/f.yaml=1 rules/s/b.yaml=1",
			prepare: func(w *watching) {
				w.write("out/f", "1")
				w.write("dir/b.yaml", "1")
				w.link("../out/f", "rules/f.yaml")
				w.link("../dir", "rules/s")
			},
			change: func(w *watching) {
				w.write("out/f", "2")
				w.want("rules/f.yaml=2 rules/s/b.yaml=1")
				w.write("dir/c.yaml", "3")
				w.want("rules/f.yaml=2 rules/s/b.yaml=1 rules/s/c.yaml=3")
			},
		},
		{
			name: "a link to nothing fails alone and heals", path: "rules", first: "rules/a.yaml=1",
			prepare: func(w *watching) { w.write("rules/a.yaml", "1") },
			change: func(w *watching) {
				w.link("../b", "rules/b.yaml")
				w.want(`rules/a.yaml=1 reading "rules/b.yaml": no such file or directory`)
				w.write("rules/a.yaml", "2")
				w.want(`rules/a.yaml=2 reading "rules/b.yaml": no such file or directory`)
				w.write("b", "3")
				w.want("rules/a.yaml=2 rules/b.yaml=3")
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := watchRules(t, test.path, FolderOptions{Beside: test.path == "config"}, func(w *watching, _ *Folder) {
				if test.prepare != nil {
					test.prepare(w)
				}
			})
			w.want(test.first)
			test.change(w)
		})
	}
}

// TestRunKnowsWhatReadGave: a run reports what differs from the read before it.
func TestRunKnowsWhatReadGave(t *testing.T) {
	read := func(w *watching, f *Folder, want string) {
		w.Helper()
		if got := w.text(f.Read()); got != want {
			w.Fatalf("Read gave %q, want %q", got, want)
		}
	}
	t.Run("nothing differs", func(t *testing.T) {
		w := watchRules(t, "rules", FolderOptions{}, func(w *watching, f *Folder) {
			w.write("rules/a.yaml", "1")
			read(w, f, "rules/a.yaml=1")
		})
		w.wantNothing()
	})
	t.Run("a file differs", func(t *testing.T) {
		w := watchRules(t, "rules", FolderOptions{}, func(w *watching, f *Folder) {
			w.write("rules/a.yaml", "1")
			read(w, f, "rules/a.yaml=1")
			w.write("rules/a.yaml", "2")
		})
		w.want("rules/a.yaml=2")
	})
	t.Run("the folder is still missing", func(t *testing.T) {
		w := watchRules(t, "rules", FolderOptions{}, func(w *watching, f *Folder) {
			read(w, f, `error: reading rules "rules": no such file or directory`)
		})
		w.wantNothing()
		w.write("rules/a.yaml", "1")
		w.want("rules/a.yaml=1")
	})
}

// TestSameBytes: what leaves names and contents as they were is no change.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	w := watchRules(t, "rules", FolderOptions{}, func(w *watching, _ *Folder) { w.write("rules/a.yaml", "1") })
	w.want("rules/a.yaml=1")
	w.write("rules/a.yaml", "1")
	w.wantNothing()
	w.write("rules/tmp", "1")
	w.rename("rules/tmp", "rules/a.yaml")
	w.write("rules/README.md", "x")
	w.write("rules/.a.yaml.swp", "x")
	w.do(os.Chtimes(w.at("rules/a.yaml"), time.Time{}, time.Unix(1, 0)))
	w.wantNothing()
	w.remove("rules")
	w.want(`error: reading rules "rules": no such file or directory`)
	w.wantNothing() // an error is told once
}

// TestEndlessWrites: a file that is written all the time holds nothing up for long.
func TestEndlessWrites(t *testing.T) {
	for _, name := range []string{"rules/log.txt", "rules/b.yaml"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watchRules(t, "rules", FolderOptions{}, func(w *watching, _ *Folder) {
				w.write("rules/a.yaml", "1")
				w.write(name, "")
			})
			w.wait("rules/a.yaml=1", func(got string) bool { return strings.HasPrefix(got, "rules/a.yaml=1") })
			stop, stopped := make(chan struct{}), make(chan error)
			go func() { stopped <- scribble(w.at(name), stop) }()
			w.write("rules/a.yaml", "2")
			w.wait("rules/a.yaml=2", func(got string) bool { return strings.HasPrefix(got, "rules/a.yaml=2") })
			close(stop)
			w.do(<-stopped)
		})
	}
}

// scribble writes a file of ever another length until stop is closed.
func scribble(path string, stop <-chan struct{}) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		case <-tick.C:
			if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 1+i%10), 0o644); err != nil {
				return err
			}
		}
	}
}
