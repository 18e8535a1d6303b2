package descriptors

import (
	"fmt"
	"slices"
)

// merger joins the trees of the files of one domain. It changes none of them.
type merger struct{ problems []Problem }

// mergeFiles joins the trees of files, which are in the order of their names. Nodes of
// the same key and value become one, at the place of the first, with the children of all;
// two limits for one node are a mistake of both files.
func mergeFiles(domain string, files []*file) ([]*descriptor, []Problem) {
	if len(files) == 1 {
		return files[0].nodes, nil
	}
	lists := make([][]*descriptor, len(files))
	for i, f := range files {
		lists[i] = f.nodes
	}
	var m merger
	nodes := m.join(lists, (&scope{}).below(oneLine(domain)))
	return nodes, m.problems
}

func (m *merger) join(lists [][]*descriptor, s *scope) []*descriptor {
	groups := make(map[identity][]*descriptor)
	var order []identity
	for _, d := range slices.Concat(lists...) {
		id := d.identity()
		if groups[id] == nil {
			order = append(order, id)
		}
		groups[id] = append(groups[id], d)
	}
	joined := make([]*descriptor, len(order))
	for i, id := range order {
		joined[i] = m.one(groups[id], s)
	}
	return joined
}

// one makes one node of the nodes with the same key and value. The limit and what goes
// with it (modes, metadata) are those of the file that has the limit; share_threshold,
// value_to_metric and sensitive hold if any file says so.
func (m *merger) one(same []*descriptor, s *scope) *descriptor {
	if len(same) == 1 {
		return same[0]
	}
	here := s.below(same[0].place())
	node := *same[0]
	lists := [][]*descriptor{node.children}
	for _, d := range same[1:] {
		switch {
		case d.rule != nil && node.rule != nil:
			m.twice(&node, d, here)
			m.twice(d, &node, here)
		case d.rule != nil:
			node.rule = d.rule
			node.file, node.at = d.file, d.at
		}
		node.share = node.share || d.share
		node.valueToMetric = node.valueToMetric || d.valueToMetric
		node.sensitive = node.sensitive || d.sensitive
		lists = append(lists, d.children)
	}
	node.children = m.join(lists, here)
	return &node
}

// twice reports at d that other has a limit as well.
func (m *merger) twice(d, other *descriptor, s *scope) {
	m.problems = append(m.problems, Problem{
		File: d.file.name, Line: int(d.at.line), Column: int(d.at.column), Path: s.field("rate_limit").String(),
		Message: fmt.Sprintf("a second limit for the node that has one at %s:%d; remove one of the two", other.file.name, other.at.line),
	})
}
