package descriptors

import "crypto/sha256"

// file is one parsed file. It is never changed once parsed.
type file struct {
	name string
	// domain is the domain as written, also where the rest has mistakes.
	domain   string
	domainAt spot
	digest   [sha256.Size]byte
	nodes    []*descriptor
}

// descriptor is one node of a file's tree.
type descriptor struct {
	file *file
	at   spot
	// key and value are as written; an absent and an empty value are the same: any.
	key, value string
	// rule has what rate_limit says, nil without one.
	rule                    *Rule
	shadow, quota, detailed bool
	valueToMetric           bool
	share, sensitive        bool
	metadata                map[string]any
	children                []*descriptor
}

// identity is what no two descriptors of one list may have in common.
type identity struct{ key, value string }

func (d *descriptor) identity() identity { return identity{d.key, d.value} }

// label shows the descriptor in a rule's path.
func (d *descriptor) label() string {
	if d.value == "" {
		return d.key
	}
	return d.key + "=" + d.value
}
