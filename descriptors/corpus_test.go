package descriptors_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/descriptors"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// minBadFiles keeps the corpus of mistakes from shrinking unseen.
const minBadFiles = 60

func TestBadFiles(t *testing.T) {
	files := corpus(t, "bad")
	if len(files) < minBadFiles {
		t.Errorf("%d bad files, want at least %d", len(files), minBadFiles)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			rules, problems := load(t, path)
			failed := false
			var got strings.Builder
			for _, p := range problems {
				failed = failed || !p.Warning
				fmt.Fprintf(&got, "%s\n", p.Error())
				if p.Line < 1 && !strings.HasSuffix(p.Message, "more problems") {
					t.Errorf("no line: %v", p)
				}
			}
			if !failed {
				t.Error("no mistake was found")
			}
			if rules.Len() != 0 {
				t.Errorf("%d rules in force of a file with a mistake", rules.Len())
			}
			golden(t, path, got.String())
		})
	}
}

func TestGoodFiles(t *testing.T) {
	for _, path := range corpus(t, "good") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			rules, problems := load(t, path)
			var got strings.Builder
			for _, p := range problems {
				if !p.Warning {
					t.Errorf("mistake found: %v", p)
				}
				fmt.Fprintf(&got, "warning: %s\n", p.Error())
			}
			for _, p := range rules.Hints() {
				fmt.Fprintf(&got, "hint: %s\n", p.Error())
			}
			for r := range rules.All() {
				got.WriteString(dump(r))
			}
			golden(t, path, got.String())
		})
	}
}

func corpus(t *testing.T, kind string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", kind, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata/%s: %v", kind, err)
	}
	return files
}

// load loads one file under its base name.
func load(t *testing.T, path string) (*descriptors.Rules, []descriptors.Problem) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return descriptors.NewLoader(descriptors.Options{}).Load([]descriptors.Source{{Name: filepath.Base(path), Data: data}})
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	name := strings.TrimSuffix(path, ".yaml") + ".golden"
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// dump shows all of a rule that is not at its default.
func dump(r *descriptors.Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s: %s (%s:%d)\n", r.ID, r.Domain, r.Path, r.File, r.Line)
	if !r.Unlimited {
		fmt.Fprintf(&b, "\t%d per %d × %s", r.RequestsPerUnit, r.UnitMultiplier, r.Unit)
		fmt.Fprintf(&b, ", algorithm %d, %d per %s, burst %d\n", r.Limit.Algorithm, r.Limit.Requests, r.Limit.Period, r.Limit.Burst)
	}
	show := func(set bool, format string, args ...any) {
		if set {
			fmt.Fprintf(&b, "\t"+format+"\n", args...)
		}
	}
	show(r.Unlimited, "unlimited")
	show(r.BurstWritten, "burst written")
	show(r.Name != "", "name %q", r.Name)
	show(len(r.Replaces) > 0, "replaces %q", r.Replaces)
	show(r.Shadow, "shadow")
	show(r.Quota, "quota")
	show(r.DetailedMetric, "detailed metric")
	show(r.PerValueMetric, "metric for each value")
	show(r.Overflow != backend.Auto, "overflow %d", r.Overflow)
	show(r.OnFailure != descriptors.FailDefault, "on failure %d", r.OnFailure)
	show(!r.Prefetch, "no prefetch")
	show(r.RetryAfter != descriptors.RetryComputed, "retry after %d", r.RetryAfter)
	if r.Body != nil {
		show(true, "body %q %q", r.Body.ContentType, r.Body.Text)
	}
	show(r.Metadata != nil, "metadata %v", r.Metadata)
	return b.String()
}
