package descriptors

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sluice-rls/sluice/backend"
)

// parser turns one file's YAML into a draft and collects the file's problems.
type parser struct {
	file             *file
	defaultAlgorithm backend.Algorithm
	language         *language

	problems []Problem
	// failed says that a problem was an error.
	failed bool
	// dropped counts the problems beyond maxProblems.
	dropped int

	depth               int
	visited, maxVisited int
	// unfolded counts the bytes of texts as often as aliases repeat them, and of paths;
	// pathBytes is the length of the path at hand.
	unfolded, maxUnfolded, pathBytes int
	// exhausted says that maxVisited, maxUnfolded or maxDepth was passed and reading has stopped.
	exhausted bool
}

// parseFile parses one file. The file is returned with its domain, as far as that can
// be read, also if it has mistakes; ok says that it has none.
func parseFile(source Source, options Options) (f *file, problems []Problem, ok bool) {
	p := &parser{
		file:             &file{name: source.Name},
		defaultAlgorithm: options.DefaultAlgorithm,
		language:         &ruleLanguage,
		// A byte begins at most two nodes: a key and its absent value.
		maxVisited:  2*len(source.Data) + maxAliased,
		maxUnfolded: 8*len(source.Data) + maxText,
	}
	root, found := readDocument(source.Name, source.Data)
	p.problems = found
	p.failed = len(found) > 0
	if root != nil || !p.failed {
		p.readFile(root)
	}
	if p.dropped > 0 {
		p.problems = append(p.problems, Problem{
			File: source.Name, Message: fmt.Sprintf("%d more problems", p.dropped), Warning: !p.failed,
		})
	}
	return p.file, p.problems, !p.failed
}

// readFile reads the root of a document, nil for an empty one.
func (p *parser) readFile(root *yaml.Node) {
	f := p.file
	s := &scope{descriptor: true}
	if root == nil || isNull(root) {
		p.fail(nil, s, "empty domain: the file is empty; a file begins with domain: NAME")
		return
	}
	if root = p.resolve(root); root.Kind != yaml.MappingNode {
		p.fail(root, s, "the file is %s; it takes a map with domain and descriptors", kindName(root))
		return
	}
	pairs := p.pairs(root, s, false)
	f.domainAt = spotOf(root)
	if own := find(pairs, "domain"); own != nil {
		f.domainAt = spotOf(own.key)
		if own.value.Kind == yaml.ScalarNode && !isEmpty(own) {
			s.name = oneLine(own.value.Value)
		}
	}
	readPairs(p, s, p.language.file, f, pairs)
	if isEmpty(find(pairs, "domain")) {
		p.failAt(f.domainAt, s, "empty domain: a file begins with domain: NAME")
	}
}

// readDescriptors reads a list of descriptors, no two of which may match the same.
func (p *parser) readDescriptors(n *yaml.Node, s *scope) []*descriptor {
	items, ok := p.items(n, s, "descriptors")
	if !ok || !p.enter(n, s) {
		return nil
	}
	defer p.leave()
	list := make([]*descriptor, 0, len(items))
	seen := make(map[identity]*descriptor, len(items))
	for i, item := range items {
		d := p.readDescriptor(item, s, i)
		if d == nil {
			continue
		}
		if first, twice := seen[d.identity()]; twice {
			p.failAt(d.at, s.below(d.place()),
				"the same key and value as on line %d; one node has one limit: put children under one node, and for a second limit send a descriptor with another key",
				first.at.line)
			continue
		}
		seen[d.identity()] = d
		list = append(list, d)
	}
	return list
}

// readDescriptor reads the item'th descriptor of a list; nil if it can't be read what it
// matches.
func (p *parser) readDescriptor(n *yaml.Node, s *scope, item int) *descriptor {
	here := s.below(fmt.Sprintf("descriptors[%d]", item))
	if n.Kind != yaml.MappingNode {
		p.fail(n, here, "the list item is %s; it takes a map with a key", kindName(n))
		return nil
	}
	if !p.enter(n, here) {
		return nil
	}
	defer p.leave()
	d := &descriptor{file: p.file, at: spotOf(n)}
	pairs := p.pairs(n, here, false)
	// The path of every mistake names the descriptor, wherever in it key and value stand.
	if key := find(pairs, "key"); !isEmpty(key) && key.value.Kind == yaml.ScalarNode {
		shape := descriptor{key: key.value.Value}
		if value := find(pairs, "value"); !isEmpty(value) {
			shape.value = value.value.Value
		}
		here.name = shape.place()
	}
	length := len(here.name) + len(" > ")
	p.pathBytes += length
	if !p.unfold(n, here, p.pathBytes) {
		return nil
	}
	readPairs(p, here, p.language.descriptor, d, pairs)
	p.pathBytes -= length
	p.checkDescriptor(d, here)
	switch value := find(pairs, "value"); {
	case isEmpty(find(pairs, "key")):
		p.failAt(d.at, here, "empty key: a descriptor needs a key")
		return nil
	case d.key == "", value != nil && value.value.Kind != yaml.ScalarNode:
		return nil // reported when read
	}
	return d
}

// checkDescriptor checks what only the whole descriptor shows, and hands the rule what
// the descriptor says of it.
func (p *parser) checkDescriptor(d *descriptor, s *scope) {
	if d.share && d.key != "" && !strings.Contains(d.key, "*") && !strings.Contains(d.value, "*") {
		p.failAt(d.at, s.field("share_threshold"), "%s has no *: only the values of a wildcard share a bucket", shown(d.label()))
	}
	if d.rule == nil {
		return
	}
	r := d.rule
	r.File, r.Line, r.Column = p.file.name, int(d.at.line), int(d.at.column)
	r.Shadow, r.Quota, r.DetailedMetric, r.Metadata = d.shadow, d.quota, d.detailed, d.metadata
}

// place shows the descriptor in a problem's path: values quoted, so that each is on one
// line and its end is seen.
func (d *descriptor) place() string {
	if d.value == "" {
		return oneLine(d.key)
	}
	return oneLine(d.key) + "=" + shown(d.value)
}

// readPairs sets the fields of into from a map, by a table of the language.
func readPairs[T any](p *parser, s *scope, table fields[T], into *T, pairs []pair) {
	for i := range pairs {
		at := &pairs[i]
		if set, ok := table.set[at.name]; ok {
			set(p, s.field(at.name), into, at)
		} else {
			p.misplaced(at, s, table.names(), table.strict)
		}
	}
}

// misplaced reports a key that the table at hand does not have. The reference service
// takes its own keys anywhere and ignores them, so those only warn, unless strict is set.
func (p *parser) misplaced(at *pair, s *scope, here []string, strict bool) {
	home, ours := p.language.home(at.name)
	switch {
	case home == "":
		p.fail(at.key, s, "unknown key %s; %s", shown(at.name), suggestion(at.name, here, p.language.all()))
	case ours || strict:
		p.fail(at.key, s.field(at.name), "%s does not belong here; write it %s", at.name, home)
	default:
		p.warn(at.key, s.field(at.name), "%s has no effect here; write it %s", at.name, home)
	}
}

// items lists the items of a list, without aliases. Null is an empty list.
func (p *parser) items(n *yaml.Node, s *scope, name string) ([]*yaml.Node, bool) {
	if isNull(n) {
		return nil, true
	}
	if n.Kind != yaml.SequenceNode {
		p.fail(n, s, "%s is %s; it takes a list", name, kindName(n))
		return nil, false
	}
	items := make([]*yaml.Node, 0, len(n.Content))
	for _, item := range n.Content {
		if item = p.resolve(item); item == nil {
			return nil, false
		}
		items = append(items, item)
	}
	return items, true
}

func find(pairs []pair, name string) *pair {
	for i := range pairs {
		if pairs[i].name == name {
			return &pairs[i]
		}
	}
	return nil
}

// isEmpty reports whether a pair is absent, null or empty text.
func isEmpty(at *pair) bool {
	return at == nil || isNull(at.value) || at.value.Kind == yaml.ScalarNode && at.value.Value == ""
}

// fail reports a mistake at a node, nil for the file as a whole.
func (p *parser) fail(n *yaml.Node, s *scope, format string, args ...any) {
	at := spot{1, 1}
	if n != nil {
		at = spotOf(n)
	}
	p.failAt(at, s, format, args...)
}

func (p *parser) failAt(at spot, s *scope, format string, args ...any) {
	p.failed = true
	p.report(at, s, false, format, args...)
}

// warn reports what loads without effect.
func (p *parser) warn(n *yaml.Node, s *scope, format string, args ...any) {
	p.report(spotOf(n), s, true, format, args...)
}

func (p *parser) report(at spot, s *scope, warning bool, format string, args ...any) {
	switch {
	case p.exhausted:
		return // what is missing now was not read
	case len(p.problems) >= maxProblems:
		p.dropped++
		return
	}
	p.problems = append(p.problems, Problem{
		File: p.file.name, Line: int(at.line), Column: int(at.column), Path: s.String(),
		Message: fmt.Sprintf(format, args...), Warning: warning,
	})
}

// oneLine shows a name as it is where it is plain, and quoted where it is not.
func oneLine(name string) string {
	quoted := shown(name)
	if quoted == `"`+name+`"` {
		return name
	}
	return quoted
}
