package descriptors

import (
	"fmt"

	"gopkg.in/yaml.v3"
)

// The short tags that yaml.v3 gives to nodes.
const (
	nullTag  = "!!null"
	boolTag  = "!!bool"
	strTag   = "!!str"
	intTag   = "!!int"
	floatTag = "!!float"
	mergeTag = "!!merge"
)

const (
	// maxDepth bounds how deep lists and maps nest; a request of Envoy's has fewer
	// entries than levels fit in it.
	maxDepth = 128
	// maxAliased bounds how many nodes a file has through its aliases, beyond its own.
	maxAliased = 1_000_000
	// maxText bounds the bytes of texts and paths, beyond eight times those of the file.
	maxText = 64 << 20
)

// pair is a key of a YAML map and its value, both without aliases.
type pair struct {
	name       string
	key, value *yaml.Node
}

// resolve follows aliases to the node they stand for. It counts, so that a small file
// can't unfold to a large tree; past the bound it returns nil.
func (p *parser) resolve(n *yaml.Node) *yaml.Node {
	if p.visited++; p.exhausted || p.visited > p.maxVisited {
		p.fail(n, nil, "aliases unfold to more than %d nodes; write less with aliases", maxAliased)
		p.exhausted = true
		return nil
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if !p.unfold(n, nil, len(n.Value)) {
		return nil
	}
	return n
}

// unfold counts bytes that the rules hold in memory, so that a small file can't fill it
// by repeating a long text; past the bound it is false.
func (p *parser) unfold(n *yaml.Node, s *scope, bytes int) bool {
	if p.unfolded += bytes; p.exhausted || p.unfolded > p.maxUnfolded {
		p.fail(n, s, "aliases and nesting unfold to more than %d bytes of text; write less with aliases, or shorter texts", p.maxUnfolded)
		p.exhausted = true
		return false
	}
	return true
}

// enter counts one level of nesting and reports whether the bound allows it; past the
// bound reading stops. A true answer must be followed by leave.
func (p *parser) enter(n *yaml.Node, s *scope) bool {
	if p.depth >= maxDepth {
		p.fail(n, s, "nested deeper than %d levels", maxDepth)
		p.exhausted = true
		return false
	}
	p.depth++
	return true
}

func (p *parser) leave() { p.depth-- }

// pairs lists what a map holds. Of a key given twice the last counts, as in YAML 1.1;
// keys merged by << come after, and only where the map has not its own. Where free is
// set, keys that are not text are taken as their text.
func (p *parser) pairs(n *yaml.Node, s *scope, free bool) []pair {
	list := make([]pair, 0, len(n.Content)/2)
	at := make(map[string]int, len(n.Content)/2)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := p.resolve(n.Content[i]), p.resolve(n.Content[i+1])
		if key == nil || value == nil {
			return nil
		}
		if key.ShortTag() == mergeTag {
			merged = append(merged, value)
			continue
		}
		name, ok := p.keyName(key, s, free)
		if !ok {
			continue
		}
		if first, twice := at[name]; twice {
			p.warn(n.Content[i], s.field(name), "given a second time, after line %d; this one counts", list[first].key.Line)
			list[first] = pair{name, n.Content[i], value}
			continue
		}
		at[name] = len(list)
		list = append(list, pair{name, n.Content[i], value})
	}
	for _, value := range merged {
		list = p.merge(value, s, free, list, at)
	}
	return list
}

// merge adds to list the pairs of a map, or of a list of maps, that stands after <<.
func (p *parser) merge(n *yaml.Node, s *scope, free bool, list []pair, at map[string]int) []pair {
	if !p.enter(n, s) {
		return list
	}
	defer p.leave()
	switch n.Kind {
	case yaml.MappingNode:
		for _, own := range p.pairs(n, s, free) {
			if _, taken := at[own.name]; !taken {
				at[own.name] = len(list)
				list = append(list, own)
			}
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if item = p.resolve(item); item == nil {
				return list
			}
			list = p.merge(item, s, free, list, at)
		}
	default:
		p.fail(n, s, "<< is %s; it takes a map or a list of maps", kindName(n))
	}
	return list
}

// keyName is the text of a map's key.
func (p *parser) keyName(key *yaml.Node, s *scope, free bool) (string, bool) {
	if key.Kind != yaml.ScalarNode {
		p.fail(key, s, "a map's key is %s; keys are text", kindName(key))
		return "", false
	}
	if !free && key.ShortTag() != strTag {
		p.fail(key, s, "key %s is %s; keys are text", shown(key.Value), kindName(key))
		return "", false
	}
	return key.Value, true
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == nullTag }

// kindName says what a node is, with its article.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		return scalarName(n)
	default:
		return "nothing"
	}
}

func scalarName(n *yaml.Node) string {
	switch n.ShortTag() {
	case nullTag:
		return "null"
	case boolTag:
		return "a boolean"
	case intTag:
		return "a number"
	case floatTag:
		return "a number with a fraction"
	default:
		return "text"
	}
}

// maxShown bounds what a message repeats of a file's value.
const maxShown = 80

// shown quotes a value for a message.
func shown(text string) string {
	if len(text) > maxShown {
		return fmt.Sprintf("%q…", text[:maxShown])
	}
	return fmt.Sprintf("%q", text)
}
