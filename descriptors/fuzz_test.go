package descriptors_test

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-rls/sluice/descriptors"
)

// FuzzParse demands that any bytes load or are refused with places, in bounded time.
func FuzzParse(f *testing.F) {
	for _, kind := range []string{"good", "bad"} {
		entries, err := os.ReadDir("testdata/" + kind)
		if err != nil {
			f.Fatal(err)
		}
		for _, entry := range entries {
			if data, err := os.ReadFile("testdata/" + kind + "/" + entry.Name()); err == nil && len(data) < 4096 && strings.HasSuffix(entry.Name(), ".yaml") {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		loader := descriptors.NewLoader(descriptors.Options{})
		rules, problems := loader.Load([]descriptors.Source{{Name: "f.yaml", Data: data}})
		failed := false
		// YAML 1.1 has more line breaks than one.
		lines := 1
		for _, lineBreak := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			lines += strings.Count(string(data), lineBreak)
		}
		for _, p := range problems {
			failed = failed || !p.Warning
			if p.Line > lines+1 || p.Line < 1 && !strings.HasSuffix(p.Message, "more problems") {
				t.Errorf("line %d of %d: %v", p.Line, lines, p)
			}
			if !utf8.ValidString(p.Error()) || strings.ContainsAny(p.Error(), "\n\r") {
				t.Errorf("problem is not one line of text: %q", p.Error())
			}
		}
		if failed == (len(rules.Domains()) == 1) {
			t.Errorf("domains in force %q, with mistakes: %v", rules.Domains(), problems)
		}
		for r := range rules.All() {
			if !utf8.ValidString(r.Path) {
				t.Errorf("path is not UTF-8: %q", r.Path)
			}
			if !r.Unlimited && (r.Limit.Period <= 0 || r.Limit.Period > descriptors.MaxPeriod || r.Limit.Burst == 0 && r.Limit.Requests > 0) {
				t.Errorf("limit %+v", r.Limit)
			}
		}
		_ = rules.Hints()
	})
}

// naiveNode is a node of the matcher that FuzzMatch believes.
type naiveNode struct {
	key, value string
	path       string
	children   []naiveNode
}

// naiveMatch follows the reference's three steps over plain lists.
func naiveMatch(nodes []naiveNode, entries []descriptors.Entry) string {
	for i, e := range entries {
		n := naiveFind(nodes, e)
		if n == nil {
			return ""
		}
		if i == len(entries)-1 {
			return n.path
		}
		nodes = n.children
	}
	return ""
}

func naiveFind(nodes []naiveNode, e descriptors.Entry) *naiveNode {
	for i, n := range nodes {
		if n.value != "" && n.key == e.Key && n.value == e.Value {
			return &nodes[i]
		}
	}
	for i, n := range nodes {
		switch {
		case !strings.Contains(n.key+n.value, "*"):
		case n.value != "" && glob(n.key, e.Key) && glob(n.value, e.Value):
			return &nodes[i]
		// The separator is a byte that no pattern of the test has.
		case n.value == "" && glob(n.key, e.Key+"\x01"+e.Value):
			return &nodes[i]
		}
	}
	for i, n := range nodes {
		if n.value == "" && n.key == e.Key {
			return &nodes[i]
		}
	}
	return nil
}

// glob matches by trying every length for every star.
func glob(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	if pattern[0] == '*' {
		for i := range len(text) + 1 {
			if glob(pattern[1:], text[i:]) {
				return true
			}
		}
		return false
	}
	return text != "" && text[0] == pattern[0] && glob(pattern[1:], text[1:])
}

// short makes a text of few letters, so that patterns and values meet often.
func short(b byte) string {
	const letters = "ab*_"
	var text []byte
	for n := b & 3; n > 0; n-- {
		b >>= 2
		text = append(text, letters[b&3])
	}
	return string(text)
}

// naiveTree takes nodes from data: a key, a value, and whether children follow.
func naiveTree(data []byte, depth int, above string) (nodes []naiveNode, rest []byte) {
	seen := make(map[string]bool)
	for len(data) >= 3 {
		key, value, next := short(data[0])+"k", short(data[1]), data[2]
		if data[0]&128 != 0 {
			key = "k" + short(data[0])
		}
		data = data[3:]
		if next&3 == 3 && depth > 0 {
			return nodes, data
		}
		id := key + "\x01" + value
		if seen[id] {
			continue
		}
		seen[id] = true
		n := naiveNode{key: key, value: value, path: key}
		if value != "" {
			n.path += "=" + value
		}
		if above != "" {
			n.path = above + " > " + n.path
		}
		if next&3 == 1 && depth < 3 {
			n.children, data = naiveTree(data, depth+1, n.path)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func write(b *strings.Builder, nodes []naiveNode, depth int) {
	for _, n := range nodes {
		b.WriteString(strings.Repeat(" ", depth) + n.key)
		if n.value != "" {
			b.WriteString(` "` + n.value + `"`)
		}
		b.WriteString("\n")
		write(b, n.children, depth+1)
	}
}

// FuzzMatch compares Match with a matcher that is slow and plain.
func FuzzMatch(f *testing.F) {
	f.Add([]byte("\x01\x06\x00\x01\x0e\x00"), []byte("\x01\x06"))
	f.Add([]byte("\x85\x00\x01\x01\x02\x00\x09\x1e\x03\x85\x05\x00"), []byte("\x85\x00\x01\x02"))
	f.Fuzz(func(t *testing.T, rules, requests []byte) {
		if len(rules) > 300 || len(requests) > 300 {
			return
		}
		nodes, _ := naiveTree(rules, 0, "")
		if len(nodes) == 0 {
			return
		}
		var text strings.Builder
		write(&text, nodes, 0)
		d := rulesOf(t, tree(text.String())).Domain("d")
		var entries []descriptors.Entry
		for len(requests) >= 2 {
			e := descriptors.Entry{Key: short(requests[0]) + "k", Value: short(requests[1])}
			if requests[0]&128 != 0 {
				e.Key = "k" + short(requests[0])
			}
			requests = requests[2:]
			if entries = append(entries, e); len(entries) > 4 {
				entries = nil
			}
			got := ""
			if r := d.Match(entries); r != nil {
				got = r.Path
			}
			if want := naiveMatch(nodes, entries); got != want {
				t.Fatalf("Match(%q) = %q, want %q, of\n%s", entries, got, want, text.String())
			}
		}
	})
}
