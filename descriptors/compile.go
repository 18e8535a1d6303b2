package descriptors

import (
	"slices"
	"strings"
)

// compiler makes a domain of its tree.
type compiler struct {
	domain *Domain
	// firstID is the ID of the domain's first rule.
	firstID int
}

// compile makes the domain of a tree that has no mistakes. It only reads the tree.
func compile(name string, nodes []*descriptor, firstID int, k *keyer) *Domain {
	d := &Domain{name: name, keyer: k, nodes: nodes, prefix: domainPrefix(name)}
	c := &compiler{domain: d, firstID: firstID}
	c.list(&d.root, nodes, nil, "")
	return d
}

// list compiles the descriptors of one list below the given levels.
func (c *compiler) list(into *children, list []*descriptor, above []*level, path string) {
	if len(list) == 0 {
		return
	}
	into.keys = make(map[string]*siblings)
	for order, d := range list {
		n := &node{level: newLevel(d)}
		into.add(d, order, n)
		levels := append(slices.Clip(above), &n.level)
		below := d.label()
		if path != "" {
			below = path + " > " + below
		}
		if d.rule != nil {
			n.rule = c.rule(d, levels, below)
		}
		c.list(&n.next, d.children, levels, below)
	}
}

// add files a node under its key.
func (c *children) add(d *descriptor, order int, n *node) {
	same := c.keys[d.key]
	if same == nil {
		same = new(siblings)
		c.keys[d.key] = same
	}
	if d.value == "" {
		same.any = n
	} else {
		if same.exact == nil {
			same.exact = make(map[string]*node)
		}
		same.exact[d.value] = n
	}
	switch {
	case strings.Contains(d.key, star):
		c.starred = append(c.starred, starredKey{newPattern(d.key), newPattern(d.value), d.value != "", order, n})
	case strings.Contains(d.value, star):
		same.wild.add(wildcard{newPattern(d.value), order, n})
	}
}

// rule completes the draft's rule with what its place in the tree says.
func (c *compiler) rule(d *descriptor, levels []*level, path string) *Rule {
	r := *d.rule
	r.ID = c.firstID + len(c.domain.rules)
	r.Domain, r.Path = c.domain.name, path
	r.domain, r.levels = c.domain, levels
	for _, l := range levels {
		if l.varies && !l.shared && (r.DetailedMetric || l.inMetric) {
			r.PerValueMetric = true
		}
	}
	c.domain.rules = append(c.domain.rules, &r)
	return &r
}
