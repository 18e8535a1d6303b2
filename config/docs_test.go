package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// settingsPage is the page whose tables are made from the table of settings.
const settingsPage = "../docs/settings.md"

// TestSettingsPage: the page says what the table says. With -update it is written anew.
func TestSettingsPage(t *testing.T) {
	data, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	page := fill(t, string(data), "settings", settingsTables())
	page = fill(t, page, "idle", idleList())
	if *update {
		if err := os.WriteFile(settingsPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(page, string(data)); diff != "" {
		t.Errorf("%s is out of date, go test ./config -update writes it (-want +got):\n%s", settingsPage, diff)
	}
}

// fill is page with text between the comments "<!-- name: ..." and "<!-- end of name -->".
func fill(t *testing.T, page, name, text string) string {
	t.Helper()
	head, rest, ok1 := strings.Cut(page, "<!-- "+name+":")
	comment, rest, ok2 := strings.Cut(rest, "-->\n")
	_, tail, ok3 := strings.Cut(rest, "<!-- end of "+name+" -->")
	if !ok1 || !ok2 || !ok3 {
		t.Fatalf("%s lacks the comments of %s", settingsPage, name)
	}
	return head + "<!-- " + name + ":" + comment + "-->\n" + text + "<!-- end of " + name + " -->" + tail
}

func settingsTables() string {
	var out strings.Builder
	p := &parser{}
	for _, group := range p.table() {
		fmt.Fprintf(&out, "\n## %s\n\n| variable | flag | value | default | meaning |\n| --- | --- | --- | --- | --- |\n", group.title)
		for i := range group.rows {
			r := &group.rows[i]
			fmt.Fprintf(&out, "| %s | `-%s` | %s | %s | %s |\n", code(r.env), r.flag(), r.value.kind, code(r.def), r.help)
		}
	}
	out.WriteString("\n")
	return out.String()
}

func idleList() string {
	names := make([]string, len(idle))
	for i, name := range idle {
		names[i] = code(name)
	}
	return "\n" + strings.Join(names, ", ") + "\n\n"
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// TestTable: names are given once, in the table or as idle, and each has its help.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	once := func(name string) {
		t.Helper()
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true
	}
	p := &parser{}
	p.groups = p.table()
	for r := range p.rows() {
		once(r.id())
		once("-" + r.flag())
		if r.help == "" || r.value.kind == "" || strings.Contains(r.help, "|") || strings.HasSuffix(r.help, ".") {
			t.Errorf("%s: help %q, value %q", r.id(), r.help, r.value.kind)
		}
	}
	for _, name := range idle {
		once(name)
	}
	if !slices.Contains(idle, "GRPC_SERVER_TLS_CA_CERT") {
		t.Error("the idle names are not split into words")
	}
}
