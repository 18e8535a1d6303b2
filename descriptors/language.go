package descriptors

import (
	"maps"
	"slices"

	"github.com/sluice-rls/sluice/backend"
)

// setter reads one key's value into the draft.
type setter[T any] func(p *parser, s *scope, into *T, at *pair)

// fields are the keys that one kind of map takes.
type fields[T any] struct {
	set map[string]setter[T]
	// strict makes a known key in the wrong place a mistake: the reference service has no
	// such map, so no file relies on it.
	strict bool
}

func (f fields[T]) has(name string) bool {
	_, ok := f.set[name]
	return ok
}

// names lists the keys, sorted.
func (f fields[T]) names() []string { return slices.Sorted(maps.Keys(f.set)) }

// language is the table of all keys, by the kind of map that takes them.
type language struct {
	file        fields[file]
	descriptor  fields[descriptor]
	limit       fields[limit]
	replacement fields[replacement]
	body        fields[body]
}

// replacement is one item of replaces.
type replacement struct{ name string }

// ruleLanguage is the rule language. A parser reaches it through its own field, since
// descriptors hold descriptors and the table could not refer to itself.
var ruleLanguage = language{
	file: fields[file]{set: map[string]setter[file]{
		"domain":      text(func(f *file) *string { return &f.domain }),
		"descriptors": readRoots,
	}},
	descriptor: fields[descriptor]{set: map[string]setter[descriptor]{
		"key":             text(func(d *descriptor) *string { return &d.key }),
		"value":           text(func(d *descriptor) *string { return &d.value }),
		"descriptors":     readChildren,
		"rate_limit":      readLimit,
		"shadow_mode":     flag(func(d *descriptor) *bool { return &d.shadow }),
		"quota_mode":      flag(func(d *descriptor) *bool { return &d.quota }),
		"detailed_metric": flag(func(d *descriptor) *bool { return &d.detailed }),
		"value_to_metric": flag(func(d *descriptor) *bool { return &d.valueToMetric }),
		"share_threshold": flag(func(d *descriptor) *bool { return &d.share }),
		"sensitive":       flag(func(d *descriptor) *bool { return &d.sensitive }),
		"metadata":        readMetadata,
	}},
	limit: fields[limit]{set: map[string]setter[limit]{
		"unit":              readUnit,
		"requests_per_unit": number(0, maxUint32, func(l *limit) *given[uint32] { return &l.requests }),
		"unlimited":         flag(func(l *limit) *bool { return &l.unlimited }),
		"name":              readName,
		"replaces":          readReplaces,
		"algorithm":         choice(algorithms, func(l *limit) *given[backend.Algorithm] { return &l.algorithm }),
		"burst":             number(1, maxUint32, func(l *limit) *given[uint32] { return &l.burst }),
		"unit_multiplier":   number(1, maxUint32, func(l *limit) *given[uint32] { return &l.multiplier }),
		"on_failure":        choice(failures, func(l *limit) *given[OnFailure] { return &l.onFailure }),
		"overflow":          choice(overflows, func(l *limit) *given[backend.Overflow] { return &l.overflow }),
		"prefetch":          choice(prefetches, func(l *limit) *given[bool] { return &l.prefetch }),
		"shards":            readShards,
		"retry_after":       readRetryAfter,
		"body":              readBody,
	}},
	replacement: fields[replacement]{set: map[string]setter[replacement]{
		"name": text(func(r *replacement) *string { return &r.name }),
	}},
	body: fields[body]{strict: true, set: map[string]setter[body]{
		"content_type": text(func(b *body) *string { return &b.contentType }),
		"text":         readBodyText,
		"json":         readBodyJSON,
	}},
}

// Where the keys of each kind of map belong, in words.
const (
	inFile       = `at the top of the file`
	inDescriptor = `beside "key"`
	inLimit      = `under "rate_limit"`
	inBody       = `under "body"`
)

// extensions are the keys that the reference service does not have: it refuses them
// anywhere, so one in the wrong place is a mistake and no warning.
var extensions = []string{
	"algorithm", "body", "burst", "content_type", "json", "on_failure", "overflow", "prefetch",
	"retry_after", "sensitive", "shards", "text", "unit_multiplier",
}

// home says where a key belongs, "" for an unknown one, and whether it is one of ours.
func (l *language) home(name string) (where string, ours bool) {
	ours = slices.Contains(extensions, name)
	switch {
	case l.file.has(name) && name != "descriptors":
		return inFile, ours
	case l.descriptor.has(name):
		return inDescriptor, ours
	case l.limit.has(name):
		return inLimit, ours
	case l.body.has(name):
		return inBody, ours
	}
	return "", false
}

// all lists every key of the language, sorted.
func (l *language) all() []string {
	names := slices.Concat(l.file.names(), l.descriptor.names(), l.limit.names(), l.replacement.names(), l.body.names())
	slices.Sort(names)
	return slices.Compact(names)
}

func readRoots(p *parser, s *scope, f *file, at *pair) {
	f.nodes = p.readDescriptors(at.value, s.parent)
}

func readChildren(p *parser, s *scope, d *descriptor, at *pair) {
	d.children = p.readDescriptors(at.value, s.parent)
}
