package descriptors_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/descriptors"
)

// keyOf matches the request in domain d and makes its bucket's key.
func keyOf(t *testing.T, rules *descriptors.Rules, items ...string) string {
	t.Helper()
	entries := request(items...)
	r := rules.Domain("d").Match(entries)
	if r == nil {
		t.Fatalf("Match(%q) = nil", items)
	}
	return string(r.AppendKey(nil, entries))
}

// The keys are stored, and instances of different releases share them: they must not
// change.
func TestAppendKeyForm(t *testing.T) {
	long := strings.Repeat("v", 129)
	for _, test := range []struct {
		rules   string
		request []string
		want    string
	}{
		{"k", []string{"k=v"}, "{1:d1:k1:v}:dT"},
		{"k", []string{"k="}, "{1:d1:k0:}:dT"},
		{`k "v"`, []string{"k=v"}, "{1:d1:k1:v}:eT"},
		{`k "v*"`, []string{"k=v1"}, "{1:d1:k2:v1}:w1:k2:v*T"},
		{`k "v*" share_threshold`, []string{"k=v1"}, "{1:ds1:k2:v*}:s1:k2:v*T"},
		{"k* share_threshold", []string{"k1=v1"}, "{1:ds2:k*0:}:s2:k*0:T"},
		{"k*", []string{"k1=v1"}, "{1:d2:k12:v1}:w2:k*0:T"},
		{"k -\n l", []string{"k=v", "l=w"}, "{1:d1:k1:v}:dd1:l1:wT"},
		{"k -\n l \"x*\"", []string{"k=v", "l=xy"}, "{1:d1:k1:v}:dw1:l2:x*1:l2:xyT"},
		{"k -\n l \"x*\" share_threshold", []string{"k=v", "l=xy"}, "{1:d1:k1:v}:ds1:l2:x*T"},
		{"k", []string{"k={a}%"}, "{1:d1:k4:%7Ba%7D%25}:dT"},
		{"k", []string{"k=\xff\x00\n"}, "{1:d1:k3:\xff\x00\n}:dT"},
		{"k", []string{"k=" + long[:128]}, "{1:d1:k128:" + long[:128] + "}:dT"},
		{"k", []string{"k=" + long}, "{1:d1:khe1f9b9f5edbf52483c8b405a6735ed73}:dT"},
		{"k sensitive", []string{"k=token"}, "{1:d1:kh3a6a70b57f919d9218bd35c24f98c3e7}:dT"},
		{"k -\n l sensitive", []string{"k=v", "l=token"}, "{1:d1:k1:v}:dd1:lh3a6a70b57f919d9218bd35c24f98c3e7T"},
	} {
		if got := keyOf(t, rulesOf(t, tree(test.rules)), test.request...); got != test.want {
			t.Errorf("%s: AppendKey(%q) = %q, want %q", test.rules, test.request, got, test.want)
		}
	}
}

// A long key of a request, as a key with a star takes it, does not make a long bucket key.
func TestLongKeys(t *testing.T) {
	rules := rulesOf(t, tree("k* -\n k*"))
	long := "k" + strings.Repeat("x", 50_000)
	a, b := keyOf(t, rules, long+"a=v", "k=w"), keyOf(t, rules, long+"b=v", "k=w")
	c := keyOf(t, rules, "k=v", long+"=w")
	if a == b || len(a) > 512 || len(c) > 512 {
		t.Errorf("keys of %d, %d and %d bytes, the first two equal: %v", len(a), len(b), len(c), a == b)
	}
}

// Rules serve while others are loaded.
func TestConcurrentUse(t *testing.T) {
	l := descriptors.NewLoader(descriptors.Options{HashKeys: true})
	rules, _ := l.Load([]descriptors.Source{{Name: "a", Data: []byte(tree("k value_to_metric -\n l"))}})
	entries := request("k=v", "l=w")
	r := rules.Domain("d").Match(entries)
	want := string(r.AppendKey(nil, entries))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				r := rules.Domain("d").Match(entries)
				if got := string(r.AppendKey(nil, entries)); got != want || string(r.AppendLabel(nil, entries)) != "k=v > l" {
					t.Errorf("AppendKey = %q, want %q", got, want)
				}
			}
		})
	}
	for i := range 50 {
		l.Load([]descriptors.Source{{Name: "a", Data: []byte(tree(fmt.Sprintf("k%d", i)))}})
	}
	wg.Wait()
}

// R81: with HashKeys no value of a request lies in a key, and the secret decides what
// does.
func TestHashKeys(t *testing.T) {
	keys := make(map[string]string)
	for _, secret := range []string{"", "one", "two"} {
		rules := rulesOf(t, tree("auth -\n route"), descriptors.Options{HashKeys: true, HashSecret: []byte(secret)})
		key := keyOf(t, rules, "auth=bearer-token", "route=orders")
		if strings.Contains(key, "bearer") || strings.Contains(key, "orders") {
			t.Errorf("secret %q: key %q shows a value", secret, key)
		}
		if other := keyOf(t, rules, "auth=bearer-tokem", "route=orders"); other == key {
			t.Errorf("secret %q: two values have one key", secret)
		}
		if before, taken := keys[key]; taken {
			t.Errorf("secrets %q and %q give one key", before, secret)
		}
		keys[key] = secret
		if again := keyOf(t, rulesOf(t, tree("auth -\n route"), descriptors.Options{HashKeys: true, HashSecret: []byte(secret)}), "auth=bearer-token", "route=orders"); again != key {
			t.Errorf("secret %q: another instance has the key %q, want %q", secret, again, key)
		}
	}
}

// A limit may change under its bucket; an algorithm starts afresh.
func TestKeyOutlivesLimit(t *testing.T) {
	key := func(limit string) string {
		t.Helper()
		return keyOf(t, rulesOf(t, "domain: d\ndescriptors:\n- key: k\n  rate_limit: "+limit), "k=v")
	}
	first := key("{unit: second, requests_per_unit: 5}")
	if changed := key("{unit: hour, requests_per_unit: 7, burst: 9, unit_multiplier: 2, name: x, retry_after: 5}"); changed != first {
		t.Errorf("another limit has the key %q, want %q", changed, first)
	}
	seen := map[string]string{first: "token_bucket"}
	for _, algorithm := range []string{"fixed_window", "sliding_window", "sliding_log", "leaky_bucket"} {
		k := key("{unit: second, requests_per_unit: 5, algorithm: " + algorithm + "}")
		if other, taken := seen[k]; taken {
			t.Errorf("%s and %s share a key", algorithm, other)
		}
		seen[k] = algorithm
	}
	byDefault := rulesOf(t, "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: second, requests_per_unit: 5}", descriptors.Options{DefaultAlgorithm: backend.SlidingLog})
	if k := keyOf(t, byDefault, "k=v"); seen[k] != "sliding_log" {
		t.Errorf("key by the default algorithm %q is not that of sliding_log", k)
	}
}

// R06: with share_threshold all values draw on one bucket, below nested entries too.
func TestShareThreshold(t *testing.T) {
	rules := rulesOf(t, tree("file \"docs/*\" share_threshold\nx -\n file \"docs/*\" share_threshold -\n  user"))
	if a, b := keyOf(t, rules, "file=docs/a"), keyOf(t, rules, "file=docs/b"); a != b {
		t.Errorf("keys %q and %q, want one", a, b)
	}
	if a, b := keyOf(t, rules, "x=1", "file=docs/a", "user=u"), keyOf(t, rules, "x=1", "file=docs/b", "user=u"); a != b {
		t.Errorf("nested keys %q and %q, want one", a, b)
	}
	if a, b := keyOf(t, rules, "x=1", "file=docs/a", "user=u"), keyOf(t, rules, "x=1", "file=docs/a", "user=w"); a == b {
		t.Errorf("users share the key %q", a)
	}
	// A client that sends the pattern's text is one of those who share.
	if a, b := keyOf(t, rules, "file=docs/*"), keyOf(t, rules, "file=docs/b"); a != b {
		t.Errorf("keys %q and %q, want one", a, b)
	}
}

// Two overrides never share a bucket, neither with each other nor with a rule.
func TestAppendOverrideKey(t *testing.T) {
	d := rulesOf(t, tree("k\nk \"secret\" sensitive\nf \"x*\" share_threshold")).Domain("d")
	seen := map[string]string{keyOf(t, rulesOf(t, tree("k")), "k=v"): "the rule"}
	add := func(name string, requests uint32, unit descriptors.Unit, multiplier uint32, items ...string) string {
		t.Helper()
		key := string(d.AppendOverrideKey(nil, request(items...), requests, unit, multiplier, backend.TokenBucket))
		if other, taken := seen[key]; taken {
			t.Errorf("%s and %s share the key %q", name, other, key)
		}
		seen[key] = name
		return key
	}
	first := add("first", 5, descriptors.Second, 1, "k=v")
	add("requests", 51, descriptors.Second, 1, "k=v")
	add("unit", 5, descriptors.Minute, 1, "k=v")
	add("multiplier", 5, descriptors.Second, 30, "k=v")
	add("value", 5, descriptors.Second, 1, "k=w")
	add("key", 5, descriptors.Second, 1, "j=v")
	add("entries", 5, descriptors.Second, 1, "k=v", "l=w")
	add("no entries", 5, descriptors.Second, 1)
	add("shared a", 5, descriptors.Second, 1, "f=xa")
	add("shared b", 5, descriptors.Second, 1, "f=xb")
	if key := add("sensitive", 5, descriptors.Second, 1, "k=secret"); strings.Contains(key, "secret") {
		t.Errorf("key %q shows a sensitive value", key)
	}
	if key := string(d.AppendOverrideKey(nil, request("k=v"), 5, descriptors.Second, 0, backend.TokenBucket)); key != first {
		t.Errorf("no multiplier gives %q, want that of 1, %q", key, first)
	}
	for _, items := range [][]string{{"k=v"}, {"f=xa"}, {"k=secret"}} {
		entries := request(items...)
		rule, override := d.Match(entries).AppendKey(nil, entries), d.AppendOverrideKey(nil, entries, 5, descriptors.Second, 1, backend.TokenBucket)
		if tag(string(rule)) != tag(string(override)) {
			t.Errorf("%q: tags %q of the rule and %q of the override", items, tag(string(rule)), tag(string(override)))
		}
	}
}

// tag is what a Redis Cluster hashes of a key.
func tag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	inside, _, _ := strings.Cut(rest, "}")
	return inside
}

// FuzzKey demands that two buckets have one key only if they are one bucket: the same
// domain, rule, and values where the rule tells values apart.
func FuzzKey(f *testing.F) {
	f.Add("d", "e", "k", "l", "v", "w", false)
	f.Add("d1:k", "d", "k1:v}:d", "1:k", "{", "%7B", false)
	f.Add("a", "a1:k", "k", "k1", "h3a6a70b57f919d9218bd35c24f98c3e7", "token", true)
	f.Add("d", "dd", "k", "kk", "x*", "x", false)
	f.Fuzz(func(t *testing.T, domainA, domainB, keyA, keyB, valueA, valueB string, hashAll bool) {
		if domainA == domainB || keyA == keyB || strings.Contains(keyA+keyB, "*") {
			return
		}
		l := descriptors.NewLoader(descriptors.Options{HashKeys: hashAll})
		var sources []descriptors.Source
		for _, domain := range []string{domainA, domainB} {
			sources = append(sources, descriptors.Source{Name: domain, Data: keyRules(domain, keyA, keyB)})
		}
		rules, _ := l.Load(sources)
		if rules.Domain(domainA) == nil || rules.Domain(domainB) == nil {
			return // the strings are no text of a file
		}
		identities := make(map[string]string)
		tags := make(map[string]string)
		check := func(identity, first, key string) {
			t.Helper()
			if other, taken := identities[key]; taken && other != identity {
				t.Fatalf("%s and %s share the key %q", other, identity, key)
			}
			identities[key] = identity
			if other, known := tags[first]; known && other != tag(key) {
				t.Fatalf("%s has the tag %q, others of its first entry %q", identity, tag(key), other)
			}
			tags[first] = tag(key)
		}
		for _, domain := range []string{domainA, domainB} {
			d := rules.Domain(domain)
			for _, entries := range keyRequests(keyA, keyB, valueA, valueB) {
				first := fmt.Sprintf("%q %q", domain, entries[0])
				check(fmt.Sprintf("override %q %q", domain, entries), first, string(d.AppendOverrideKey(nil, entries, 1, descriptors.Second, 1, backend.TokenBucket)))
				if r := d.Match(entries); r != nil {
					identity := fmt.Appendf(nil, "rule %q %q", domain, r.Path)
					for _, e := range entries {
						if !strings.HasPrefix(e.Value, "x") || e.Key == keyB {
							identity = fmt.Appendf(identity, "%q", e)
						}
					}
					check(string(identity), first, string(r.AppendKey(nil, entries)))
				}
			}
		}
	})
}

// keyRules is a file with nodes of each kind. Values of keyA that begin with x share a
// bucket.
func keyRules(domain, keyA, keyB string) []byte {
	limit := map[string]any{"unit": "second", "requests_per_unit": 1}
	node := func(key, value string, share, sensitive bool, children ...any) any {
		return map[string]any{
			"key": key, "value": value, "share_threshold": share, "sensitive": sensitive,
			"rate_limit": limit, "descriptors": children,
		}
	}
	below := []any{node(keyB, "", false, false), node(keyB, "y*", false, false), node(keyB, "z", false, true)}
	data, _ := json.Marshal(map[string]any{"domain": domain, "descriptors": []any{
		node(keyA, "", false, false, below...),
		node(keyA, "x*", true, false, below...),
		node(keyA, "v", false, true, below...),
		node(keyB, "", false, false, below...),
	}})
	return data
}

func keyRequests(keyA, keyB, valueA, valueB string) [][]descriptors.Entry {
	var requests [][]descriptors.Entry
	values := []string{valueA, valueB, "", "v", "x" + valueA, "x" + valueB, "y" + valueA, "z"}
	for _, key := range []string{keyA, keyB} {
		for _, v := range values {
			requests = append(requests, []descriptors.Entry{{Key: key, Value: v}})
			for _, w := range values {
				requests = append(requests, []descriptors.Entry{{Key: key, Value: v}, {Key: keyB, Value: w}})
			}
		}
	}
	return requests
}

// Neither a match nor a key of plain values allocates.
func TestAllocations(t *testing.T) {
	d := rulesOf(t, tree("k -\n l\n l \"x*\"\n l \"*mid*le\"\nfoo*\n* \"*z\"")).Domain("d")
	for _, items := range [][]string{
		{"k=v", "l=w"},
		{"k=v{}%", "l=xyz"},
		{"k=v", "l=middle"},
		{"foobar=x"},
		{"any=xyz"},
		{"none=x"},
	} {
		entries := request(items...)
		dst := make([]byte, 0, 512)
		if n := testing.AllocsPerRun(100, func() {
			if r := d.Match(entries); r != nil {
				dst = r.AppendKey(dst[:0], entries)
			}
			dst = d.AppendOverrideKey(dst[:0], entries, 5, descriptors.Minute, 1, backend.TokenBucket)
		}); n != 0 {
			t.Errorf("%q: %v allocations, want none", items, n)
		}
	}
}

// A key has a bound, however many entries a request brings, and still tells them apart.
func TestKeysAreBounded(t *testing.T) {
	d := rulesOf(t, "domain: d\ndescriptors:\n- key: k\n").Domain("d")
	entries := make([]descriptors.Entry, 5000)
	for i := range entries {
		entries[i] = descriptors.Entry{Key: "k", Value: strconv.Itoa(i)}
	}
	seen := make(map[string]bool)
	for _, n := range []int{0, 1, 2, 4998, 4999, 5000} {
		key := string(d.AppendOverrideKey([]byte("before"), entries[:n], 7, descriptors.Hour, 1, backend.TokenBucket))
		if len(key) > 2200 || !strings.HasPrefix(key, "before{1:d") || seen[key] {
			t.Errorf("%d entries: a key of %d bytes, seen before %v: %.80q", n, len(key), seen[key], key)
		}
		seen[key] = true
	}
}
