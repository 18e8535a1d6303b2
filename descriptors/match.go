package descriptors

// node is one compiled descriptor.
type node struct {
	level level
	// rule is nil where the descriptor has no limit.
	rule *Rule
	next children
}

// children are the compiled descriptors of one list.
type children struct {
	keys map[string]*siblings
	// starred are the nodes with a star in their key, in file order.
	starred []starredKey
}

// siblings are the nodes of one list that have the same key.
type siblings struct {
	// exact finds a node by the value as written, wildcards included: a request's value
	// that spells the pattern belongs to its node.
	exact map[string]*node
	wild  prefixes
	// any is the node without a value.
	any *node
}

// starredKey is a node with a star in its key.
type starredKey struct {
	key pattern
	// value matches the value; where there is none, key stands for both.
	value    pattern
	hasValue bool
	order    int
	node     *node
}

func (k *starredKey) match(e *Entry) bool {
	if k.hasValue {
		return k.key.match(e.Key) && k.value.match(e.Value)
	}
	return k.key.matchEntry(e.Key, e.Value)
}

// Match finds the rule of a request's descriptor: nil if the descriptor has no entries,
// no node, or a node without a limit. At each level the node with the entry's value is
// taken, else the first wildcard in file order that matches, else the node without a
// value; a node once taken is never left for a sibling. The rule must be as deep as the
// descriptor is long. Match does not allocate and keeps nothing of entries.
func (d *Domain) Match(entries []Entry) *Rule {
	var n *node
	next := &d.root
	for i := range entries {
		if n = next.find(&entries[i]); n == nil {
			return nil
		}
		next = &n.next
	}
	if n == nil {
		return nil
	}
	return n.rule
}

func (c *children) find(e *Entry) *node {
	same := c.keys[e.Key]
	var best *wildcard
	if same != nil {
		if n := same.exact[e.Value]; n != nil {
			return n
		}
		best = same.wild.find(e.Value)
	}
	for i := range c.starred {
		k := &c.starred[i]
		if best != nil && best.order < k.order {
			break
		}
		if k.match(e) {
			return k.node
		}
	}
	switch {
	case best != nil:
		return best.node
	case same != nil:
		return same.any
	}
	return nil
}
