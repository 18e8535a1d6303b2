//go:build integration

package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Every file that a page links to is there, and every make target that it names.
func TestPages(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	links, targets := 0, 0
	for _, page := range pages {
		name, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(mustRead(t, name), -1) {
			file, _, _ := strings.Cut(m[1], "#")
			if file == "" || strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), file)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
		}
		for _, step := range readPage(t, name) {
			command, _, _ := strings.Cut(step.command, "#")
			if target, ok := strings.CutPrefix(strings.TrimSpace(command), "make "); ok {
				targets++
				if err := makes(t, target); err != nil {
					t.Errorf("%s:%d: %v", name, step.line, err)
				}
			}
		}
	}
	if links == 0 || targets == 0 {
		t.Errorf("%d pages with %d links and %d make targets, want some of each", len(pages), links, targets)
	}
}
