package descriptors_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-rls/sluice/descriptors"
)

// ruled is a file of one domain with one rule for each key.
func ruled(domain string, keys ...string) string {
	text := []byte("domain: " + domain + "\ndescriptors:\n")
	for i, key := range keys {
		text = fmt.Appendf(text, "- key: %s\n  rate_limit: {unit: second, requests_per_unit: %d}\n", key, i+1)
	}
	return string(text)
}

const broken = "domain: edge\ndescriptors:\n- key: a\n  rate_limit: {unit: sec, requests_per_unit: 1}\n"

// step is one load of a sequence: the files, by name, and what must be in force after it.
type step struct {
	files map[string]string
	// rules are "domain path" of each rule in force.
	rules []string
	// states are the domains, with what is wrong.
	states []string
	// problems are the places, in order.
	problems []string
}

func TestLoader(t *testing.T) {
	for _, test := range []struct {
		name  string
		merge bool
		steps []step
	}{
		{
			name: "no files",
			steps: []step{
				{},
				{files: map[string]string{"a": ruled("edge", "k")}, rules: []string{"edge k"}, states: []string{"edge [a]"}},
				{},
			},
		},
		{
			name: "an edit acts",
			steps: []step{
				{files: map[string]string{"a": ruled("edge", "k")}, rules: []string{"edge k"}, states: []string{"edge [a]"}},
				{files: map[string]string{"a": ruled("edge", "l")}, rules: []string{"edge l"}, states: []string{"edge [a]"}},
				{files: map[string]string{"a": ruled("other", "l")}, rules: []string{"other l"}, states: []string{"other [a]"}},
			},
		},
		{
			name: "a bad file keeps its rules and lets others act",
			steps: []step{
				{
					files: map[string]string{"a": ruled("edge", "k"), "b": ruled("shop", "m")},
					rules: []string{"edge k", "shop m"}, states: []string{"edge [a]", "shop [b]"},
				},
				{
					files: map[string]string{"a": broken, "b": ruled("shop", "n")},
					rules: []string{"edge k", "shop n"}, states: []string{"edge [a] stale", "shop [b]"},
					problems: []string{"a:4"},
				},
				{
					files: map[string]string{"a": broken, "b": ruled("shop", "o")},
					rules: []string{"edge k", "shop o"}, states: []string{"edge [a] stale", "shop [b]"},
					problems: []string{"a:4"},
				},
				{
					files: map[string]string{"a": ruled("edge", "l"), "b": ruled("shop", "o")},
					rules: []string{"edge l", "shop o"}, states: []string{"edge [a]", "shop [b]"},
				},
			},
		},
		{
			name: "a file that was never good has no rules",
			steps: []step{
				{
					files: map[string]string{"a": broken, "b": ruled("shop", "m")},
					rules: []string{"shop m"}, states: []string{"edge [a] out stale", "shop [b]"}, problems: []string{"a:4"},
				},
				{
					files: map[string]string{"a": "domain: [", "b": ruled("shop", "m")},
					rules: []string{"shop m"}, states: []string{"shop [b]"}, problems: []string{"a:1"},
				},
			},
		},
		{
			name: "an emptied file keeps its rules",
			steps: []step{
				{files: map[string]string{"a": ruled("edge", "k")}, rules: []string{"edge k"}, states: []string{"edge [a]"}},
				{files: map[string]string{"a": ""}, rules: []string{"edge k"}, states: []string{"edge [a] stale"}, problems: []string{"a:1"}},
			},
		},
		{
			name: "a file that is gone takes its rules along",
			steps: []step{
				{
					files: map[string]string{"a": ruled("edge", "k"), "b": ruled("shop", "m")},
					rules: []string{"edge k", "shop m"}, states: []string{"edge [a]", "shop [b]"},
				},
				{files: map[string]string{"b": ruled("shop", "m")}, rules: []string{"shop m"}, states: []string{"shop [b]"}},
				{
					// It was forgotten: coming back broken, it has nothing to keep.
					files: map[string]string{"a": broken, "b": ruled("shop", "m")},
					rules: []string{"shop m"}, states: []string{"edge [a] out stale", "shop [b]"}, problems: []string{"a:4"},
				},
			},
		},
		{
			name: "a renamed file is a new one",
			steps: []step{
				{files: map[string]string{"a": ruled("edge", "k")}, rules: []string{"edge k"}, states: []string{"edge [a]"}},
				{files: map[string]string{"b": ruled("edge", "k")}, rules: []string{"edge k"}, states: []string{"edge [b]"}},
			},
		},
		{
			// R21: without merging both files are named, and the domain stays as it was.
			name: "one domain in two files",
			steps: []step{
				{files: map[string]string{"b": ruled("edge", "k")}, rules: []string{"edge k"}, states: []string{"edge [b]"}},
				{
					files: map[string]string{"a": ruled("edge", "l"), "b": ruled("edge", "k"), "c": ruled("shop", "m")},
					rules: []string{"edge k", "shop m"}, states: []string{"edge [a b] stale", "shop [c]"},
					problems: []string{"a:1", "b:1"},
				},
				{
					files: map[string]string{"a": ruled("edge", "l"), "b": ruled("edge", "j"), "c": ruled("shop", "n")},
					rules: []string{"edge k", "shop n"}, states: []string{"edge [a b] stale", "shop [c]"},
					problems: []string{"a:1", "b:1"},
				},
				{files: map[string]string{"a": ruled("edge", "l")}, rules: []string{"edge l"}, states: []string{"edge [a]"}},
			},
		},
		{
			name: "one domain in two files from the start",
			steps: []step{
				{
					files:  map[string]string{"a": ruled("edge", "l"), "b": ruled("edge", "k")},
					states: []string{"edge [a b] out stale"}, problems: []string{"a:1", "b:1"},
				},
				{
					files: map[string]string{"a": ruled("edge", "l"), "b": ruled("shop", "k")},
					rules: []string{"edge l", "shop k"}, states: []string{"edge [a]", "shop [b]"},
				},
			},
		},
		{
			name: "the file whose rules a contested domain keeps is gone",
			steps: []step{
				{files: map[string]string{"a": ruled("edge", "k")}, rules: []string{"edge k"}, states: []string{"edge [a]"}},
				{
					files:  map[string]string{"b": ruled("edge", "l"), "c": ruled("edge", "m")},
					states: []string{"edge [b c] out stale"}, problems: []string{"b:1", "c:1"},
				},
			},
		},
		{
			name: "the file whose rules a contested domain keeps went to another",
			steps: []step{
				{files: map[string]string{"a": ruled("edge", "k")}, rules: []string{"edge k"}, states: []string{"edge [a]"}},
				{
					files: map[string]string{"a": ruled("shop", "k"), "b": ruled("edge", "l"), "c": ruled("edge", "m")},
					rules: []string{"shop k"}, states: []string{"edge [b c] out stale", "shop [a]"}, problems: []string{"b:1", "c:1"},
				},
			},
		},
		{
			name:  "merging in order of names",
			merge: true,
			steps: []step{
				{
					files: map[string]string{"b": ruled("edge", "k", "l"), "a": ruled("edge", "m"), "c": ruled("shop", "n")},
					rules: []string{"edge m", "edge k", "edge l", "shop n"}, states: []string{"edge [a b]", "shop [c]"},
				},
				{
					files: map[string]string{"b": ruled("edge", "k", "l"), "a": broken, "c": ruled("shop", "n")},
					rules: []string{"edge m", "edge k", "edge l", "shop n"}, states: []string{"edge [a b] stale", "shop [c]"},
					problems: []string{"a:4"},
				},
				{
					files: map[string]string{"a": broken, "c": ruled("shop", "n")},
					rules: []string{"edge m", "shop n"}, states: []string{"edge [a] stale", "shop [c]"}, problems: []string{"a:4"},
				},
			},
		},
		{
			// R22, R116: two limits for one node name both files, and only that domain waits.
			name:  "merging files that contradict each other",
			merge: true,
			steps: []step{
				{
					files: map[string]string{"a": ruled("edge", "k"), "b": ruled("edge", "l"), "c": ruled("shop", "m")},
					rules: []string{"edge k", "edge l", "shop m"}, states: []string{"edge [a b]", "shop [c]"},
				},
				{
					files: map[string]string{"a": ruled("edge", "k", "l"), "b": ruled("edge", "l"), "c": ruled("shop", "n")},
					rules: []string{"edge k", "edge l", "shop n"}, states: []string{"edge [a b] stale", "shop [c]"},
					problems: []string{"a:5", "b:3"},
				},
				{
					files: map[string]string{"a": ruled("edge", "k", "l"), "c": ruled("shop", "n")},
					rules: []string{"edge k", "edge l", "shop n"}, states: []string{"edge [a]", "shop [c]"},
				},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := descriptors.NewLoader(descriptors.Options{MergeDomains: test.merge})
			for i, s := range test.steps {
				rules, problems := l.Load(sourcesOf(s.files))
				got := step{files: s.files}
				for r := range rules.All() {
					if r.ID != len(got.rules) {
						t.Errorf("load %d: rule %s has the ID %d, want %d", i, r.Path, r.ID, len(got.rules))
					}
					got.rules = append(got.rules, r.Domain+" "+r.Path)
				}
				for _, state := range rules.States() {
					got.states = append(got.states, stateText(state))
					if state.InForce != (rules.Domain(state.Domain) != nil) || state.InForce != slices.Contains(rules.Domains(), state.Domain) {
						t.Errorf("load %d: %+v, Domain(%q) = %v", i, state, state.Domain, rules.Domain(state.Domain))
					}
				}
				for _, p := range problems {
					got.problems = append(got.problems, fmt.Sprintf("%s:%d", p.File, p.Line))
				}
				if diff := cmp.Diff(s, got, cmp.AllowUnexported(step{})); diff != "" {
					t.Fatalf("load %d (-want +got):\n%s\n%v", i, diff, problems)
				}
			}
		})
	}
}

func stateText(s descriptors.DomainState) string {
	text := fmt.Sprintf("%s %v", s.Domain, s.Files)
	if !s.InForce {
		text += " out"
	}
	if s.Stale {
		text += " stale"
	}
	return text
}

// sourcesOf lists files in an order that is not theirs.
func sourcesOf(files map[string]string) []descriptors.Source {
	var sources []descriptors.Source
	for name, text := range files {
		sources = append(sources, descriptors.Source{Name: name, Data: []byte(text)})
	}
	slices.SortFunc(sources, func(a, b descriptors.Source) int { return strings.Compare(b.Name, a.Name) })
	return sources
}

// R21: files of one domain are merged node by node, at any depth.
func TestMergeNested(t *testing.T) {
	l := descriptors.NewLoader(descriptors.Options{MergeDomains: true})
	rules, problems := l.Load([]descriptors.Source{
		{Name: "b.yaml", Data: []byte(tree("tenant \"x\" -\n route \"GET/*\"\n route\nfile \"docs/*\" share_threshold"))},
		{Name: "a.yaml", Data: []byte(tree("tenant \"x\"\n route \"POST/*\"\n  user\ntenant\nfile \"docs/*\" -"))},
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var got []string
	for r := range rules.All() {
		got = append(got, fmt.Sprintf("%s (%s)", r.Path, r.File))
	}
	want := []string{
		"tenant=x (a.yaml)", "tenant=x > route=POST/* (a.yaml)", "tenant=x > route=POST/* > user (a.yaml)",
		"tenant=x > route=GET/* (b.yaml)", "tenant=x > route (b.yaml)", "tenant (a.yaml)", "file=docs/* (b.yaml)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if a, b := keyOf(t, rules, "file=docs/a"), keyOf(t, rules, "file=docs/b"); a != b {
		t.Errorf("share_threshold was lost: keys %q and %q", a, b)
	}
	if r := rules.Domain("d").Match(request("tenant=x", "route=GET/x")); r == nil || r.Path != "tenant=x > route=GET/*" {
		t.Errorf("Match = %v", r)
	}
}

func TestMergeConflictNamesBoth(t *testing.T) {
	l := descriptors.NewLoader(descriptors.Options{MergeDomains: true})
	_, problems := l.Load([]descriptors.Source{
		{Name: "a.yaml", Data: []byte(tree("route \"slow\" -\n user"))},
		{Name: "b.yaml", Data: []byte(tree("k\nroute \"slow\" -\n user"))},
	})
	var got []string
	for _, p := range problems {
		got = append(got, p.Error())
	}
	want := []string{
		`a.yaml:6:9: d > route="slow" > user > rate_limit: a second limit for the node that has one at b.yaml:8; remove one of the two`,
		`b.yaml:8:9: d > route="slow" > user > rate_limit: a second limit for the node that has one at a.yaml:6; remove one of the two`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestSharedDomainNamesBoth(t *testing.T) {
	_, problems := descriptors.NewLoader(descriptors.Options{}).Load([]descriptors.Source{
		{Name: "a.yaml", Data: []byte("# rules\ndomain: shop\n")},
		{Name: "b.yaml", Data: []byte("descriptors: []\ndomain: shop\n")},
	})
	var got []string
	for _, p := range problems {
		got = append(got, p.Error())
	}
	want := []string{
		`a.yaml:2:1: shop: the domain is also in b.yaml; keep it in one file, or let files be merged (MERGE_DOMAIN_CONFIG=true)`,
		`b.yaml:2:1: shop: the domain is also in a.yaml; keep it in one file, or let files be merged (MERGE_DOMAIN_CONFIG=true)`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestVersion(t *testing.T) {
	load := func(files map[string]string) string {
		t.Helper()
		rules, _ := descriptors.NewLoader(descriptors.Options{}).Load(sourcesOf(files))
		return rules.Version()
	}
	one := load(map[string]string{"a": ruled("edge", "k"), "b": ruled("shop", "k")})
	if again := load(map[string]string{"x/a": ruled("edge", "k"), "x/b": ruled("shop", "k")}); again != one {
		t.Errorf("the same rules elsewhere have the version %q, want %q", again, one)
	}
	if other := load(map[string]string{"a": ruled("edge", "k"), "b": ruled("shop", "l")}); other == one {
		t.Errorf("other rules have the version %q too", other)
	}
	l := descriptors.NewLoader(descriptors.Options{})
	before, _ := l.Load(sourcesOf(map[string]string{"a": ruled("edge", "k")}))
	after, _ := l.Load(sourcesOf(map[string]string{"a": broken}))
	if before.Version() != after.Version() {
		t.Errorf("a bad edit changed the version from %q to %q", before.Version(), after.Version())
	}
}

// Rules that are being served do not change under a reload.
func TestRulesAreSnapshots(t *testing.T) {
	l := descriptors.NewLoader(descriptors.Options{})
	data := []byte(ruled("edge", "k"))
	before, _ := l.Load([]descriptors.Source{{Name: "a", Data: data}})
	copy(data, strings.Repeat("#", len(data)))
	rule := before.Domain("edge").Match(request("k=v"))
	if _, problems := l.Load(sourcesOf(map[string]string{"a": ruled("edge", "l")})); len(problems) > 0 {
		t.Fatal(problems)
	}
	if got := before.Domain("edge").Match(request("k=v")); got != rule || rule == nil {
		t.Errorf("Match = %v after a reload, want %v", got, rule)
	}
}

// A file that is there and can't be read keeps its rules, like one with a mistake.
func TestAFileThatCannotBeRead(t *testing.T) {
	l := descriptors.NewLoader(descriptors.Options{})
	good := descriptors.Source{Name: "a.yaml", Data: []byte(ruled("edge", "k"))}
	unread := descriptors.Source{Name: "a.yaml", Err: errors.New("opening: permission denied")}
	f := func(s descriptors.Source, rules int, want string) {
		t.Helper()
		r, problems := l.Load([]descriptors.Source{s})
		var got []string
		for _, p := range problems {
			got = append(got, p.Error())
		}
		if r.Len() != rules || strings.Join(got, "\n") != want {
			t.Errorf("%d rules, problems %q, want %d and %q", r.Len(), got, rules, want)
		}
	}
	f(unread, 0, "a.yaml: opening: permission denied")
	f(good, 1, "")
	f(unread, 1, "a.yaml: opening: permission denied")
	f(good, 1, "")
	if r, _ := l.Load(nil); r.Len() != 0 {
		t.Errorf("%d rules after the file is gone", r.Len())
	}
}
