package descriptors

import (
	"fmt"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

// readName reads a rule's name. Envoy writes current_limit.name unescaped into its
// x-ratelimit-limit header, so what could end the header or its quotes is refused.
func readName(p *parser, s *scope, l *limit, at *pair) {
	value, ok := p.scalar(at.value, s, "text")
	if !ok {
		return
	}
	if i := strings.IndexFunc(value, unsafeInHeader); i >= 0 {
		p.fail(at.value, s, "%s holds %s; a name goes into a header and has no control characters, quotes or backslashes",
			shown(value), shown(string([]rune(value[i:])[0])))
		return
	}
	l.name = value
}

func unsafeInHeader(r rune) bool { return r == '"' || r == '\\' || unicode.IsControl(r) }

// readReplaces reads the list of {name: …} that a rule replaces.
func readReplaces(p *parser, s *scope, l *limit, at *pair) {
	items, ok := p.items(at.value, s, "replaces")
	if !ok {
		return
	}
	for i, item := range items {
		here := s.parent.field(fmt.Sprintf("replaces[%d]", i))
		if item.Kind != yaml.MappingNode {
			p.fail(item, here, "the list item is %s; it takes a map: name: RULE", kindName(item))
			continue
		}
		pairs := p.pairs(item, here, false)
		var r replacement
		readPairs(p, here, p.language.replacement, &r, pairs)
		if isEmpty(find(pairs, "name")) {
			p.fail(item, here, "empty name; name the rule to replace")
			continue
		}
		l.replaces = append(l.replaces, r.name)
	}
}
