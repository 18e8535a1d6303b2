package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-rls/sluice/config"
)

// tree makes files (path=content), links (path->target) and folders (path/) below root.
func tree(t *testing.T, root string, words ...string) {
	t.Helper()
	for _, w := range words {
		name, target, link := strings.Cut(w, "->")
		if !link {
			name, target, _ = strings.Cut(w, "=")
		}
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case link:
			err = os.Symlink(target, path)
		default:
			err = os.WriteFile(path, []byte(target), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// show is files as name=content, with names from root.
func show(root string, files []config.File) []string {
	var words []string
	for _, f := range files {
		name, err := filepath.Rel(root, f.Name)
		if err != nil {
			name = f.Name
		}
		if f.Err != nil {
			words = append(words, name+" failed")
			continue
		}
		words = append(words, name+"="+string(f.Data))
	}
	return words
}

func TestRead(t *testing.T) {
	for _, test := range []struct {
		name string
		tree []string
		want []string
	}{
		{name: "an empty folder", tree: []string{"rules/"}},
		{
			name: "yaml and yml of the folder and its subfolders, by path",
			tree: []string{"rules/b.yaml=2", "rules/a/z.yml=1", "rules/a.YAML=0", "rules/c/d/e.yaml=3", "rules/c/"},
			want: []string{"rules/a.YAML=0", "rules/a/z.yml=1", "rules/b.yaml=2", "rules/c/d/e.yaml=3"},
		},
		{
			name: "neither dots, READMEs, backups nor others",
			tree: []string{
				"rules/a.yaml=1", "rules/.b.yaml=x", "rules/.git/c.yaml=x", "rules/README.yaml=x", "rules/readme/d.yaml=x",
				"rules/a.yaml~=x", "rules/a.yaml.bak=x", "rules/a.yaml.orig=x", "rules/.a.yaml.swp=x", "rules/#a.yaml#=x",
				"rules/#b.yaml=x", "rules/.#a.yaml->nowhere", "rules/old~/e.yaml=x", "rules/notes.txt=x", "rules/yaml=x", "rules/4913=x",
			},
			want: []string{"rules/a.yaml=1"},
		},
		{
			name: "a mounted ConfigMap",
			tree: []string{
				"rules/..2024_1/config.yaml=1", "rules/..2024_1/sub/x.yaml=2", "rules/..data->..2024_1",
				"rules/config.yaml->..data/config.yaml", "rules/sub->..data/sub",
			},
			want: []string{"rules/config.yaml=1", "rules/sub/x.yaml=2"},
		},
		{
			name: "links that go round in circles",
			tree: []string{"rules/a.yaml=1", "rules/here->.", "rules/sub/up->..", "rules/self->self", "rules/one->two", "rules/two->one"},
			want: []string{"rules/a.yaml=1"},
		},
		{
			name: "a folder under two names is read once",
			tree: []string{"elsewhere/x.yaml=1", "rules/one->../elsewhere", "rules/two->../elsewhere"},
			want: []string{"rules/one/x.yaml=1"},
		},
		{
			name: "a link to a file elsewhere, and one to nothing",
			tree: []string{"elsewhere/x=1", "rules/x.yaml->../elsewhere/x", "rules/y.yaml->../elsewhere/y", "rules/z->nowhere"},
			want: []string{"rules/x.yaml=1", "rules/y.yaml failed"},
		},
		{
			name: "a folder named like a file",
			tree: []string{"rules/dir.yaml/a.yaml=1"},
			want: []string{"rules/dir.yaml/a.yaml=1"},
		},
		{
			name: "the folder itself may be a link and begin with a dot",
			tree: []string{".hidden/a.yaml=1", "rules->.hidden"},
			want: []string{"rules/a.yaml=1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			tree(t, root, test.tree...)
			files, err := config.NewFolder(filepath.Join(root, "rules"), config.FolderOptions{}).Read()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, show(root, files)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadOneFile(t *testing.T) {
	root := t.TempDir()
	tree(t, root, "rules.conf=1", "other.yaml=2", "link->rules.conf")
	for _, name := range []string{"rules.conf", "link"} {
		files, err := config.NewFolder(filepath.Join(root, name), config.FolderOptions{}).Read()
		if diff := cmp.Diff([]string{name + "=1"}, show(root, files)); diff != "" || err != nil {
			t.Errorf("files of %s (-want +got), error %v:\n%s", name, err, diff)
		}
	}
}

func TestReadRelative(t *testing.T) {
	root := t.TempDir()
	tree(t, root, "rules/a.yaml=1")
	t.Chdir(root)
	files, err := config.NewFolder("./rules/", config.FolderOptions{}).Read()
	if err != nil || len(files) != 1 || files[0].Name != "rules/a.yaml" {
		t.Errorf("files %+v, error %v, want rules/a.yaml", files, err)
	}
}

func TestReadBeside(t *testing.T) {
	root := t.TempDir()
	tree(t, root, "config/a.yaml=1", "config.flat.yaml=2", "config.yaml=3", "config.txt=x", "configs.yaml=x", "other.yaml=x")
	path := filepath.Join(root, "config")
	want := []string{"config.flat.yaml=2", "config.yaml=3", "config/a.yaml=1"}
	f := func(want ...string) {
		t.Helper()
		files, err := config.NewFolder(path, config.FolderOptions{Beside: true}).Read()
		if diff := cmp.Diff(want, show(root, files)); diff != "" || err != nil {
			t.Errorf("files (-want +got), error %v:\n%s", err, diff)
		}
	}
	f(want...)
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	f(want[:2]...)
	tree(t, root, "config/")
	files, err := config.NewFolder(path, config.FolderOptions{}).Read()
	if len(files) > 0 || err != nil {
		t.Errorf("files %v, error %v without the option, want none", show(root, files), err)
	}
}

func TestReadMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no", "rules")
	_, err := config.NewFolder(path, config.FolderOptions{}).Read()
	if want := fmt.Sprintf("reading rules %q: no such file or directory", path); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the error is not fs.ErrNotExist")
	}
}

// TestReadLargeFile: a file beyond the bound fails alone.
func TestReadLargeFile(t *testing.T) {
	root := t.TempDir()
	tree(t, root, "ok.yaml=1", "large.yaml=")
	if err := os.Truncate(filepath.Join(root, "large.yaml"), config.MaxFile+1); err != nil {
		t.Fatal(err)
	}
	files, err := config.NewFolder(root, config.FolderOptions{}).Read()
	if diff := cmp.Diff([]string{"large.yaml failed", "ok.yaml=1"}, show(root, files)); diff != "" || err != nil {
		t.Fatalf("files (-want +got), error %v:\n%s", err, diff)
	}
	if want := "16777217 bytes are above 16777216"; !strings.Contains(files[0].Err.Error(), want) {
		t.Errorf("error %v, want %s", files[0].Err, want)
	}
}

func ExampleFolder_Read() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // an example's leftovers
	for name, content := range map[string]string{"edge.yaml": "domain: edge", "edge.yaml.bak": "domain: old", "README.md": "about"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			fmt.Println(err)
			return
		}
	}
	files, err := config.NewFolder(dir, config.FolderOptions{}).Read()
	for _, file := range files {
		fmt.Printf("%s: %s\n", filepath.Base(file.Name), file.Data)
	}
	fmt.Println(err)
	// Output:
	// edge.yaml: domain: edge
	// <nil>
}
