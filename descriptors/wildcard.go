package descriptors

import (
	"slices"
	"strings"
)

// star stands in a pattern for any bytes, or none.
const star = "*"

// pattern is a text with stars, split once. Without a star it matches itself alone.
type pattern struct {
	literal        bool
	prefix, suffix string
	// inner are the texts between stars, in order, none empty.
	inner []string
}

func newPattern(text string) pattern {
	parts := strings.Split(text, star)
	if len(parts) == 1 {
		return pattern{literal: true, prefix: text}
	}
	last := len(parts) - 1
	inner := slices.DeleteFunc(slices.Clone(parts[1:last]), func(part string) bool { return part == "" })
	return pattern{prefix: parts[0], suffix: parts[last], inner: inner}
}

// match reports whether the pattern covers the whole text. Taking each inner text at its
// leftmost place leaves the most for the rest, so no other place need be tried.
func (p *pattern) match(text string) bool {
	if p.literal {
		return text == p.prefix
	}
	if len(text) < len(p.prefix)+len(p.suffix) || !strings.HasPrefix(text, p.prefix) || !strings.HasSuffix(text, p.suffix) {
		return false
	}
	return holdsInOrder(text[len(p.prefix):len(text)-len(p.suffix)], p.inner)
}

// matchEntry matches a pattern that stands for key and value together, as a key with a
// star and no value does: a star may reach from the key over into the value, a text of
// the pattern lies in one of the two. So foo* takes every key that begins with foo, and
// *foo every value that ends with foo.
func (p *pattern) matchEntry(key, value string) bool {
	if !strings.HasPrefix(key, p.prefix) || !strings.HasSuffix(value, p.suffix) {
		return false
	}
	inKey := key[len(p.prefix):]
	inValue := value[:len(value)-len(p.suffix)]
	for i, part := range p.inner {
		at := strings.Index(inKey, part)
		if at < 0 {
			return holdsInOrder(inValue, p.inner[i:])
		}
		inKey = inKey[at+len(part):]
	}
	return true
}

// holdsInOrder reports whether the parts stand in the text one after the other.
func holdsInOrder(text string, parts []string) bool {
	for _, part := range parts {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

// wildcard is a node whose value is a pattern, below a plain key.
type wildcard struct {
	value pattern
	// order is the node's place among its siblings: the first in the file wins.
	order int
	node  *node
}

// prefixes finds the first wildcard in file order that matches a value. The wildcards
// are grouped by the text before their first star, so that a level of many thousands
// costs a look-up for each length of such texts and not a comparison for each wildcard.
type prefixes struct {
	// lengths are the lengths of the groups' texts, ascending.
	lengths []int
	groups  map[string][]wildcard
}

func (x *prefixes) add(w wildcard) {
	if x.groups == nil {
		x.groups = make(map[string][]wildcard)
	}
	length := len(w.value.prefix)
	if at, found := slices.BinarySearch(x.lengths, length); !found {
		x.lengths = slices.Insert(x.lengths, at, length)
	}
	x.groups[w.value.prefix] = append(x.groups[w.value.prefix], w)
}

func (x *prefixes) find(value string) *wildcard {
	var best *wildcard
	for _, length := range x.lengths {
		if length > len(value) {
			break
		}
		group := x.groups[value[:length]]
		for i := range group {
			w := &group[i]
			if best != nil && best.order < w.order {
				break
			}
			if w.value.match(value) {
				best = w
				break
			}
		}
	}
	return best
}
