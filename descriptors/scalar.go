package descriptors

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

const maxUint32 = math.MaxUint32

// given is a value with its place; its line is 0 while the file has not given it.
type given[T any] struct {
	value T
	at    spot
}

func (g given[T]) set() bool { return g.at.line > 0 }

// or is the value, or what holds where the file gives none.
func (g given[T]) or(absent T) T {
	if g.set() {
		return g.value
	}
	return absent
}

// text reads a scalar as it is written: 007, on and 3.50 are text where text is asked
// for. Null is absent.
func text[T any](field func(*T) *string) setter[T] {
	return func(p *parser, s *scope, into *T, at *pair) {
		if value, ok := p.scalar(at.value, s, "text"); ok {
			*field(into) = value
		}
	}
}

// flag reads a YAML 1.1 boolean. Null is absent.
func flag[T any](field func(*T) *bool) setter[T] {
	return func(p *parser, s *scope, into *T, at *pair) {
		if _, ok := p.scalar(at.value, s, "true or false"); !ok {
			return
		}
		value, ok := boolean(at.value)
		if !ok {
			p.fail(at.value, s, "%s is %s; write true or false without quotes", shown(at.value.Value), scalarName(at.value))
			return
		}
		*field(into) = value
	}
}

// number reads a whole number within bounds. Null is absent.
func number[T any](low, high int64, field func(*T) *given[uint32]) setter[T] {
	return func(p *parser, s *scope, into *T, at *pair) {
		if value, ok := p.whole(at.value, s, low, high); ok {
			*field(into) = given[uint32]{uint32(value), spotOf(at.value)} //nolint:gosec // high is at most 2^32-1
		}
	}
}

// choices are the words that a key takes, in the order in which a message lists them.
type choices[V any] []struct {
	word  string
	value V
}

// choice reads one of some words. Null is absent.
func choice[T, V any](words choices[V], field func(*T) *given[V]) setter[T] {
	return func(p *parser, s *scope, into *T, at *pair) {
		value, ok := p.scalar(at.value, s, "one of "+strings.Join(words.words(), ", "))
		if !ok {
			return
		}
		for _, w := range words {
			if w.word == value {
				*field(into) = given[V]{w.value, spotOf(at.value)}
				return
			}
		}
		p.fail(at.value, s, "%s is none of %s%s", shown(value), strings.Join(words.words(), ", "), meant(value, words.words()))
	}
}

func (c choices[V]) words() []string {
	words := make([]string, len(c))
	for i, w := range c {
		words[i] = w.word
	}
	return words
}

// scalar is a node's text, ok only if it is a scalar and not null.
func (p *parser) scalar(n *yaml.Node, s *scope, wanted string) (value string, ok bool) {
	if n.Kind != yaml.ScalarNode {
		p.fail(n, s, "%s given; it takes %s", kindName(n), wanted)
		return "", false
	}
	return n.Value, !isNull(n)
}

// whole reads a whole number from low to high.
func (p *parser) whole(n *yaml.Node, s *scope, low, high int64) (int64, bool) {
	mend := fmt.Sprintf("write a whole number from %d to %d", low, high)
	value, ok := p.integer(n, s, mend)
	switch {
	case !ok:
	case value < low:
		p.fail(n, s, "%s is below %d; %s", oneLine(n.Value), low, mend)
	case value > high:
		p.fail(n, s, "%s is above %d; %s", oneLine(n.Value), high, mend)
	default:
		return value, true
	}
	return 0, false
}

// integer reads a whole number as YAML 1.1 does, 0x10 and 1_000 included. One that is
// beyond an int64 is taken as the nearest.
func (p *parser) integer(n *yaml.Node, s *scope, mend string) (int64, bool) {
	if _, ok := p.scalar(n, s, "a whole number"); !ok {
		return 0, false
	}
	tag := n.ShortTag()
	if tag != intTag && tag != floatTag {
		p.fail(n, s, "%s is %s; %s, without quotes", shown(n.Value), scalarName(n), mend)
		return 0, false
	}
	value, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		p.fail(n, s, "%s is no whole number; %s", oneLine(n.Value), mend)
		return 0, false
	}
	return value, true
}

// The words of YAML 1.1's booleans.
var (
	yesWords = []string{"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
	noWords  = []string{"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}
)

// boolean reads a plain scalar as YAML 1.1 does; quotes make it text.
func boolean(n *yaml.Node) (value, ok bool) {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	tagged := n.Style&yaml.TaggedStyle != 0
	if tagged && n.ShortTag() != boolTag || !tagged && n.Style&quoted != 0 {
		return false, false
	}
	yes := slices.Contains(yesWords, n.Value)
	return yes, yes || slices.Contains(noWords, n.Value)
}

// isPlainBoolean reports whether a node can be read as a boolean, or as none.
func isPlainBoolean(n *yaml.Node) bool {
	_, ok := boolean(n)
	return ok || isNull(n)
}
