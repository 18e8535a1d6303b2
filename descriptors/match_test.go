package descriptors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-rls/sluice/descriptors"
)

// rulesOf loads one file that must have no mistake.
func rulesOf(tb testing.TB, text string, options ...descriptors.Options) *descriptors.Rules {
	tb.Helper()
	options = append(options, descriptors.Options{})
	rules, problems := descriptors.NewLoader(options[0]).Load([]descriptors.Source{{Name: "rules.yaml", Data: []byte(text)}})
	for _, p := range problems {
		if !p.Warning {
			tb.Fatal(p)
		}
	}
	return rules
}

// request makes entries of "key=value" items; the first = ends the key.
func request(items ...string) []descriptors.Entry {
	entries := make([]descriptors.Entry, len(items))
	for i, item := range items {
		entries[i].Key, entries[i].Value, _ = strings.Cut(item, "=")
	}
	return entries
}

// tree writes a file of rules. Each line is a node, indented by one blank for each level
// below its parent: its key and, in quotes, its value; "-" last says that it has no
// limit, other words are set to true.
func tree(nodes string) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	depth := -1
	for line := range strings.SplitSeq(strings.Trim(nodes, "\n"), "\n") {
		text := strings.TrimLeft(line, " ")
		level := len(line) - len(text)
		pad := strings.Repeat("    ", level)
		if level > depth && depth >= 0 {
			b.WriteString(strings.Repeat("    ", depth) + "    descriptors:\n")
		}
		depth = level
		words := strings.Fields(text)
		fmt.Fprintf(&b, "%s  - key: %q\n", pad, words[0])
		limit := true
		for _, word := range words[1:] {
			switch {
			case strings.HasPrefix(word, `"`):
				fmt.Fprintf(&b, "%s    value: %s\n", pad, word)
			case word == "-":
				limit = false
			default:
				fmt.Fprintf(&b, "%s    %s: true\n", pad, word)
			}
		}
		if limit {
			fmt.Fprintf(&b, "%s    rate_limit: {unit: second, requests_per_unit: 1}\n", pad)
		}
	}
	return b.String()
}

// The vectors of the reference service: what it calls the rule's statistics, and which
// requests it counts together, seen in its storage keys.
func TestReferenceVectors(t *testing.T) {
	const rules = `
k
ab "ab*"
mid "*mid*le"
st "files/*" share_threshold
stv "files/*" share_threshold value_to_metric -
 m
wv "read*" value_to_metric
wn "read*"
det detailed_metric
 leaf
dt -
 dleaf detailed_metric
wwild "x*" -
 y "z*"
`
	for _, test := range []struct {
		request []string
		stat    string
		// same draws on the request's bucket, other does not.
		same, other []string
	}{
		{request: []string{"k=zzz"}, stat: "d.k", other: []string{"k=zz"}},
		{request: []string{"k="}, stat: "d.k", other: []string{"k=zzz"}},
		{request: []string{"ab=abc"}, stat: "d.ab_ab*", other: []string{"ab=abd"}},
		{request: []string{"mid=midle"}, stat: "d.mid_*mid*le", other: []string{"mid=amidle"}},
		{request: []string{"st=files/1"}, stat: "d.st_files/*", same: []string{"st=files/2"}},
		{request: []string{"stv=files/1", "m=GET"}, stat: "d.stv_files/*.m", same: []string{"stv=files/2", "m=GET"}, other: []string{"stv=files/1", "m=PUT"}},
		{request: []string{"wv=readx"}, stat: "d.wv_readx", other: []string{"wv=ready"}},
		{request: []string{"wn=readx"}, stat: "d.wn_read*", other: []string{"wn=ready"}},
		{request: []string{"det="}, stat: "d.det_", other: []string{"det=1"}},
		{request: []string{"det=1", "leaf=2"}, stat: "d.det.leaf", other: []string{"det=2", "leaf=2"}},
		{request: []string{"dt=1", "dleaf=2"}, stat: "d.dt_1.dleaf_2", other: []string{"dt=1", "dleaf=3"}},
		{request: []string{"wwild=x1", "y=z1"}, stat: "d.wwild_x*.y_z*", other: []string{"wwild=x1", "y=z2"}},
	} {
		t.Run(strings.Join(test.request, ","), func(t *testing.T) {
			d := rulesOf(t, tree(rules)).Domain("d")
			key := func(items []string) string {
				t.Helper()
				entries := request(items...)
				r := d.Match(entries)
				if r == nil {
					t.Fatalf("Match(%q) = nil", items)
				}
				return string(r.AppendKey(nil, entries))
			}
			entries := request(test.request...)
			if r := d.Match(entries); r == nil {
				t.Fatalf("Match(%q) = nil", test.request)
			} else if got := string(r.AppendStatName(nil, entries)); got != test.stat {
				t.Errorf("AppendStatName(%q) = %q, want %q", test.request, got, test.stat)
			}
			if test.same != nil && key(test.same) != key(test.request) {
				t.Errorf("%q and %q have buckets of their own, want one", test.request, test.same)
			}
			if test.other != nil && key(test.other) == key(test.request) {
				t.Errorf("%q and %q share a bucket", test.request, test.other)
			}
		})
	}
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		name  string
		rules string
		// want has the path of the matched rule for each request, "" for none.
		want map[string]string
	}{
		{
			name:  "exact before wildcard before key alone",
			rules: "k\nk \"a*\"\nk \"ab\"",
			want:  map[string]string{"k=ab": "k=ab", "k=abc": "k=a*", "k=b": "k", "k=": "k", "j=ab": ""},
		},
		{
			// R05: a trailing star takes any value with the prefix, the path itself aside.
			name:  "trailing star takes what is below",
			rules: `path "/api/*"`,
			want:  map[string]string{"path=/api/feed": "path=/api/*", "path=/api/": "path=/api/*", "path=/api": "", "path=/API/feed": ""},
		},
		{
			// R08: a value is the text that came, a query string included.
			name:  "a query is part of the value",
			rules: `path "/orders"`,
			want:  map[string]string{"path=/orders": "path=/orders", "path=/orders?x=1": ""},
		},
		{
			// R14: names are told apart by letter case.
			name:  "letter case counts",
			rules: "path",
			want:  map[string]string{"path=x": "path", "PATH=x": ""},
		},
		{
			name:  "first wildcard in the file wins",
			rules: "k \"ab*\"\nk \"abc*\"\nk \"*\"",
			want:  map[string]string{"k=abcde": "k=ab*", "k=abc*": "k=abc*", "k=x": "k=*", "k=": "k=*"},
		},
		{
			name:  "the narrower wildcard wins if it is first",
			rules: "k \"*z\"\nk \"a*\"\nk \"abc*\"",
			want:  map[string]string{"k=az": "k=*z", "k=abz": "k=*z", "k=abcd": "k=a*"},
		},
		{
			name:  "several stars",
			rules: `k "*mid*le"`,
			want:  map[string]string{"k=midle": "k=*mid*le", "k=a mid b le": "k=*mid*le", "k=mile": "", "k=midlex": "", "k=lemid": ""},
		},
		{
			name:  "prefix and suffix may not overlap",
			rules: `k "aba*ba"`,
			want:  map[string]string{"k=aba": "", "k=ababa": "k=aba*ba", "k=abaXba": "k=aba*ba"},
		},
		{
			name:  "depth must be equal",
			rules: "a\nb -\n c",
			want:  map[string]string{"a=1": "a", "a=1,b=2": "", "b=1": "", "b=1,c=2": "b > c", "b=1,c=2,d=3": "", "c=2": ""},
		},
		{
			name:  "no way back from an exact hit",
			rules: "k \"x\" -\n l \"1\"\nk -\n l",
			want:  map[string]string{"k=x,l=1": "k=x > l=1", "k=x,l=2": "", "k=y,l=2": "k > l"},
		},
		{
			name:  "a node without limit hides the one without value",
			rules: "k \"free\" -\nk",
			want:  map[string]string{"k=free": "", "k=other": "k"},
		},
		{
			name:  "a value is no part of a key",
			rules: "a \"b_c\"\na_b \"c\"",
			want:  map[string]string{"a=b_c": "a=b_c", "a_b=c": "a_b=c", "a_b_c=": "", "a=b": ""},
		},
		{
			name:  "a key with an underscore is no key with a value",
			rules: "k_v",
			want:  map[string]string{"k=v": "", "k_v=": "k_v", "k_v=x": "k_v"},
		},
		{
			name:  "a star in the key reaches into the value",
			rules: "foo*\nbar",
			want:  map[string]string{"foo=": "foo*", "foobar=x": "foo*", "fo=o": "", "xfoo=": "", "bar=x": "bar", "foo*=x": "foo*"},
		},
		{
			name:  "a suffix after a key's star is the value's",
			rules: "a*z",
			want:  map[string]string{"a=z": "a*z", "abc=xyz": "a*z", "az=": "", "a=zx": "", "b=z": ""},
		},
		{
			name:  "texts between a key's stars lie in key or value",
			rules: "a*b*c*",
			want:  map[string]string{"abc=": "a*b*c*", "ab=c": "a*b*c*", "a=bc": "a*b*c*", "ac=b": "", "a=cb": ""},
		},
		{
			name:  "an underscore of a pattern does not stand between key and value",
			rules: "foo_b*",
			want:  map[string]string{"foo_bar=x": "foo_b*", "foo=bar": ""},
		},
		{
			name:  "stars in key and value",
			rules: "a* \"*z\"\nab",
			want:  map[string]string{"ab=xz": "a*=*z", "a=z": "a*=*z", "ab=x": "ab", "b=z": "", "a*=*z": "a*=*z"},
		},
		{
			name:  "a key with a star comes in file order too",
			rules: "k \"a*\"\n* \"ab*\"\nk \"abc*\"",
			want:  map[string]string{"k=abc": "k=a*", "j=abc": "*=ab*", "k=b": ""},
		},
		{
			name:  "a key with a star first hides later wildcards",
			rules: "* \"ab*\"\nk \"a*\"\nk",
			want:  map[string]string{"k=abc": "*=ab*", "k=ac": "k=a*", "k=x": "k", "k=a*": "k=a*"},
		},
		{
			// R16: a descriptor may have any depth, and no entries at all.
			name:  "no entries",
			rules: "k",
			want:  map[string]string{"": ""},
		},
		{
			// R97: one node without value counts both families of addresses.
			name:  "any address",
			rules: "masked_remote_address",
			want:  map[string]string{"masked_remote_address=192.0.2.0/24": "masked_remote_address", "masked_remote_address=2001:db8::/64": "masked_remote_address"},
		},
		{
			// R117: a rule with a single generic entry acts.
			name:  "one generic entry",
			rules: `generic_key "rule-0"`,
			want:  map[string]string{"generic_key=rule-0": "generic_key=rule-0"},
		},
		{
			name:  "bytes that are no text",
			rules: "k \"a*\"\nj",
			want:  map[string]string{"k=a\xff\x00": "k=a*", "j=\xff\xfe": "j", "j=a\nb": "j"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := rulesOf(t, tree(test.rules)).Domain("d")
			for text, want := range test.want {
				var items []string
				if text != "" {
					items = strings.Split(text, ",")
				}
				got := ""
				if r := d.Match(request(items...)); r != nil {
					got = r.Path
				}
				if got != want {
					t.Errorf("Match(%q) = %q, want %q", text, got, want)
				}
			}
		})
	}
}

// A level of many wildcards answers as a short one does.
func TestMatchManyWildcards(t *testing.T) {
	const n = 2000
	var nodes strings.Builder
	for i := range n {
		fmt.Fprintf(&nodes, "k \"v%d/*\"\n", i)
	}
	nodes.WriteString("k \"v*\"\nk \"*\"\n")
	d := rulesOf(t, tree(nodes.String())).Domain("d")
	for request, want := range map[string]string{
		"v0/x": "k=v0/*", "v1999/": "k=v1999/*", "v2000/x": "k=v*", "x": "k=*", "v7": "k=v*",
	} {
		if r := d.Match([]descriptors.Entry{{Key: "k", Value: request}}); r == nil || r.Path != want {
			t.Errorf("Match(k=%s) = %v, want %q", request, r, want)
		}
	}
}

func TestDomains(t *testing.T) {
	rules := rulesOf(t, tree("k"))
	if rules.Domain("D") != nil || rules.Domain("") != nil {
		t.Error("an unknown domain was found")
	}
	if got := rules.Domain("d").Name(); got != "d" {
		t.Errorf("Name() = %q", got)
	}
}

// R103, R105: a flagged level shows its value, keys and values are apart.
func TestLabels(t *testing.T) {
	long := strings.Repeat("v", 200)
	for _, test := range []struct {
		rules    string
		request  []string
		want     string
		perValue bool
	}{
		{rules: "k", request: []string{"k=v"}, want: "k"},
		{rules: `k "v" value_to_metric`, request: []string{"k=v"}, want: "k=v"},
		{rules: "k value_to_metric", request: []string{"k=v"}, want: "k=v", perValue: true},
		{rules: "k value_to_metric -\n l", request: []string{"k=v", "l=w"}, want: "k=v > l", perValue: true},
		{rules: "k -\n l detailed_metric", request: []string{"k=v", "l=w"}, want: "k=v > l=w", perValue: true},
		{rules: "k detailed_metric -\n l", request: []string{"k=v", "l=w"}, want: "k > l"},
		{rules: "method detailed_metric -\n path \"/x\" -\n  host detailed_metric", request: []string{"method=GET", "path=/x", "host=a"}, want: "method=GET > path=/x > host=a", perValue: true},
		{rules: `k "x*" detailed_metric`, request: []string{"k=xyz"}, want: "k=xyz", perValue: true},
		{rules: `k "x*" detailed_metric share_threshold`, request: []string{"k=xyz"}, want: "k=x*"},
		{rules: `k "x*" value_to_metric share_threshold`, request: []string{"k=xyz"}, want: "k=x*"},
		{rules: "k value_to_metric", request: []string{"k=a\xff\u00e9"}, want: `k=a\xff` + "\u00e9", perValue: true},
		{rules: "k value_to_metric", request: []string{"k=\x00\x1b[31m\n\u202e\\"}, want: `k=\x00\x1b[31m\x0a\xe2\x80\xae\\`, perValue: true},
		{rules: "k value_to_metric", request: []string{`k=\xff`}, want: `k=\\xff`, perValue: true},
		{rules: "k value_to_metric", request: []string{"k=" + long}, want: "k=" + long[:128] + "…", perValue: true},
		{rules: "k value_to_metric sensitive", request: []string{"k=token"}, want: "k=h3a6a70b57f919d9218bd35c24f98c3e7", perValue: true},
	} {
		entries := request(test.request...)
		r := rulesOf(t, tree(test.rules)).Domain("d").Match(entries)
		if r == nil {
			t.Errorf("%s: Match(%q) = nil", test.rules, test.request)
			continue
		}
		if got := string(r.AppendLabel(nil, entries)); got != test.want {
			t.Errorf("%s: AppendLabel(%q) = %q, want %q", test.rules, test.request, got, test.want)
		}
		if r.PerValueMetric != test.perValue {
			t.Errorf("%s: PerValueMetric = %v, want %v", test.rules, r.PerValueMetric, test.perValue)
		}
		if !test.perValue && string(r.AppendLabel(nil, entries)) != r.Path {
			t.Errorf("%s: label %q is not the path %q", test.rules, r.AppendLabel(nil, entries), r.Path)
		}
	}
}
