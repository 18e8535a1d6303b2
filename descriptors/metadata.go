package descriptors

import (
	"math"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// readMetadata reads a map of anything, as a protobuf Struct holds it.
func readMetadata(p *parser, s *scope, d *descriptor, at *pair) {
	if isNull(at.value) {
		return
	}
	if at.value.Kind != yaml.MappingNode {
		p.fail(at.value, s, "metadata is %s; it takes a map", kindName(at.value))
		return
	}
	if value, ok := p.value(at.value, s); ok {
		d.metadata, _ = value.(map[string]any)
	}
}

// value turns any YAML into nil, bool, float64, string, []any or map[string]any. Keys
// that are not text are taken as their text.
func (p *parser) value(n *yaml.Node, s *scope) (any, bool) {
	switch n.Kind {
	case yaml.ScalarNode:
		return p.plainValue(n, s), true
	case yaml.SequenceNode:
		return p.listValue(n, s)
	case yaml.MappingNode:
		return p.mapValue(n, s)
	default:
		p.fail(n, s, "%s can't be written as JSON", kindName(n))
		return nil, false
	}
}

func (p *parser) listValue(n *yaml.Node, s *scope) (any, bool) {
	if !p.enter(n, s) {
		return nil, false
	}
	defer p.leave()
	list := make([]any, 0, len(n.Content))
	for _, item := range n.Content {
		if item = p.resolve(item); item == nil {
			return nil, false
		}
		value, ok := p.value(item, s)
		if !ok {
			return nil, false
		}
		list = append(list, value)
	}
	return list, true
}

func (p *parser) mapValue(n *yaml.Node, s *scope) (any, bool) {
	if !p.enter(n, s) {
		return nil, false
	}
	defer p.leave()
	values := make(map[string]any, len(n.Content)/2)
	for _, own := range p.pairs(n, s, true) {
		value, ok := p.value(own.value, s.field(oneLine(own.name)))
		if !ok {
			return nil, false
		}
		values[own.name] = value
	}
	return values, !p.exhausted
}

// plainValue is a scalar's value by YAML 1.1.
func (p *parser) plainValue(n *yaml.Node, s *scope) any {
	if value, ok := boolean(n); ok {
		return value
	}
	switch n.ShortTag() {
	case nullTag:
		return nil
	case intTag:
		digits := strings.ReplaceAll(n.Value, "_", "")
		if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
			return float64(i)
		}
		if u, err := strconv.ParseUint(digits, 0, 64); err == nil {
			return float64(u)
		}
	case floatTag:
		f, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64)
		if err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f
		}
		p.warn(n, s, "%s is no number that JSON has; it is sent as text", oneLine(n.Value))
	}
	return n.Value
}
