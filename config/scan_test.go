package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBounds: beyond a bound of the folder nothing of it is read.
func TestBounds(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a/b/x.yaml", "a/y.yaml", "z.yaml"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("12345"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := func(b bounds, want string) {
		t.Helper()
		folder := NewFolder(root, FolderOptions{})
		folder.bounds = b
		files, err := folder.Read()
		switch {
		case want == "" && (err != nil || len(files) != 3):
			t.Errorf("within %+v: %d files, error %v", b, len(files), err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || files != nil):
			t.Errorf("within %+v: %d files, error %v, want %s", b, len(files), err, want)
		}
	}
	f(bounds{file: 5, total: 15, files: 3, folders: 3}, "")
	f(bounds{file: 5, total: 14, files: 3, folders: 3}, "the files hold more than 14 bytes together")
	f(bounds{file: 5, total: 15, files: 2, folders: 3}, "there are more than 2 files")
	f(bounds{file: 5, total: 15, files: 3, folders: 2}, "there are more than 2 folders")
}

// TestSame: what two looks at names, sizes and times tell apart.
func TestSame(t *testing.T) {
	for name, change := range map[string]func(w *watching){
		"":           func(*watching) {},
		"size":       func(w *watching) { w.write("rules/a.yaml", "12") },
		"time":       func(w *watching) { w.do(os.Chtimes(w.at("rules/a.yaml"), time.Time{}, time.Unix(1, 0))) },
		"mode":       func(w *watching) { w.do(os.Chmod(w.at("rules/a.yaml"), 0o600)) },
		"new file":   func(w *watching) { w.write("rules/b.yaml", "") },
		"new folder": func(w *watching) { w.do(os.Mkdir(w.at("rules/s"), 0o755)) },
		"other file of the same size and time": func(w *watching) {
			info, err := os.Stat(w.at("rules/a.yaml"))
			w.do(err)
			w.write("rules/tmp", "2")
			w.do(os.Chtimes(w.at("rules/tmp"), time.Time{}, info.ModTime()))
			w.rename("rules/tmp", "rules/a.yaml")
		},
		"other folder of the same files": func(w *watching) {
			w.rename("rules", "gone")
			w.do(os.Mkdir(w.at("rules"), 0o755))
			w.do(os.Link(w.at("gone/a.yaml"), w.at("rules/a.yaml")))
			w.rename("gone/v.yaml", "rules/v.yaml")
			w.rename("gone/none.yaml", "rules/none.yaml")
		},
		"other target": func(w *watching) {
			w.link("../w", "rules/tmp")
			w.rename("rules/tmp", "rules/v.yaml")
		},
		"other error": func(w *watching) {
			w.remove("rules/none.yaml")
			w.link("none.yaml", "rules/none.yaml")
		},
		"the way": func(w *watching) {
			w.rename("rules", "live")
			w.link("live", "rules")
		},
	} {
		w := &watching{T: t, root: t.TempDir()}
		w.write("rules/a.yaml", "1")
		w.write("v", "1")
		w.link("v", "w")
		w.link("../v", "rules/v.yaml")
		w.link("nowhere", "rules/none.yaml")
		f := NewFolder(w.at("rules"), FolderOptions{})
		before, err := f.scan()
		w.do(err)
		change(w)
		after, err := f.scan()
		w.do(err)
		if got, want := before.same(after), name == ""; got != want {
			t.Errorf("same after change of %q = %v, want %v", name, got, want)
		}
	}
}
