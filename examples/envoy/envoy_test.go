package envoy_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-rls/sluice/examples/envoy"
)

// A binary that had other rules built in than the folder shows would puzzle its reader.
func TestRulesAreTheFilesOfTheFolder(t *testing.T) {
	onDisk, err := filepath.Glob("rules/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range onDisk {
		name := filepath.Base(path)
		names = append(names, name)
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := fs.ReadFile(envoy.Rules(), name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("ReadFile(%q) = %d bytes, %v, want the %d bytes of the file", name, len(got), err, len(want))
		}
	}
	if !slices.Contains(names, "edge.yaml") {
		t.Errorf("files = %q, want edge.yaml among them", names)
	}
	built, err := fs.Glob(envoy.Rules(), "*")
	if err != nil || !slices.Equal(built, names) {
		t.Errorf("built-in files = %q, %v, want %q", built, err, names)
	}
}
