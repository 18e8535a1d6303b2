package config_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-rls/sluice/config"
)

// asNobody calls f without root's right to read everything.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Setfsuid(0); err != nil {
				t.Fatal(err)
			}
		}()
	}
	f()
}

func TestReadWithoutPermission(t *testing.T) {
	root := t.TempDir()
	tree(t, root, "a.yaml=1", "b.yaml=2", "sub/c.yaml=3")
	chmod := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(filepath.Join(root, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil { // so that nobody comes as far as root
		t.Fatal(err)
	}
	folder := config.NewFolder(root, config.FolderOptions{})
	chmod("a.yaml", 0)
	asNobody(t, func() {
		files, err := folder.Read()
		if diff := cmp.Diff([]string{"a.yaml failed", "b.yaml=2", "sub/c.yaml=3"}, show(root, files)); diff != "" || err != nil {
			t.Errorf("files (-want +got), error %v:\n%s", err, diff)
		}
	})
	chmod("sub", 0)
	defer chmod("sub", 0o755)
	asNobody(t, func() {
		// The rules of a folder that cannot be listed are not gone, so this is no list.
		files, err := folder.Read()
		if want := `sub": permission denied`; err == nil || !strings.Contains(err.Error(), want) || files != nil {
			t.Errorf("%d files, error %v, want %s", len(files), err, want)
		}
	})
}

// TestReadPipe: what blocks or is no file is not waited for.
func TestReadPipe(t *testing.T) {
	root := t.TempDir()
	tree(t, root, "a.yaml=1")
	if err := syscall.Mkfifo(filepath.Join(root, "b.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := config.NewFolder(root, config.FolderOptions{}).Read()
	if diff := cmp.Diff([]string{"a.yaml=1", "b.yaml failed"}, show(root, files)); diff != "" || err != nil {
		t.Errorf("files (-want +got), error %v:\n%s", err, diff)
	}
}
