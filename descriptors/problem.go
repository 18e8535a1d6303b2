package descriptors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxProblems bounds the problems reported of one file: whoever has made more mistakes
// mends these first.
const maxProblems = 100

// Problem is one mistake in a file, or, with Warning set, something that loads but has
// no effect. It is an error, one line long.
type Problem struct {
	// File is the Source's name.
	File string
	// Line and Column count from 1. Line 0 stands for the file as a whole.
	Line, Column int
	// Path leads from the domain to the key at fault, as in
	// edge > path="/login" > rate_limit.burst; empty where there is none, as in a
	// mistake of the YAML itself.
	Path string
	// Message names the value, its bound and the mend.
	Message string
	// Warning marks a problem that does not keep the file from loading.
	Warning bool
}

// Error is "file:line:column: path: message".
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	if p.Path != "" {
		b.WriteString(": ")
		b.WriteString(p.Path)
	}
	b.WriteString(": ")
	b.WriteString(p.Message)
	return b.String()
}

// sortProblems orders problems by place, those of a file as a whole last; problems of one
// place stay in order.
func sortProblems(problems []Problem) {
	line := func(p Problem) uint { return uint(p.Line) - 1 } //nolint:gosec // line 0 is to become the largest
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(line(a), line(b)), cmp.Compare(a.Column, b.Column))
	})
}

// spot is a place in a file whose name is known.
type spot struct{ line, column int32 }

func spotOf(n *yaml.Node) spot {
	return spot{int32(n.Line), int32(n.Column)} //nolint:gosec // a file has less than 2^31 lines
}

// scope is where the parser stands: the chain of names from the domain down.
type scope struct {
	parent *scope
	name   string
	// descriptor says that the name is a domain's or a descriptor's: what follows is
	// set off by an arrow, while a field of a field is set off by a dot.
	descriptor bool
}

func (s *scope) field(name string) *scope { return &scope{parent: s, name: name} }
func (s *scope) below(name string) *scope { return &scope{parent: s, name: name, descriptor: true} }

// A path longer than maxPath names shows the first and the last half of as many.
const maxPath = 32

func (s *scope) String() string {
	var names []string
	for ; s != nil; s = s.parent {
		if s.name == "" {
			continue
		}
		name := s.name
		if len(names) > 0 {
			if s.descriptor {
				name += " > "
			} else {
				name += "."
			}
		}
		names = append(names, name)
	}
	slices.Reverse(names)
	if len(names) > maxPath {
		names = slices.Concat(names[:maxPath/2], []string{"… "}, names[len(names)-maxPath/2:])
	}
	return strings.Join(names, "")
}
