package descriptors

import (
	"iter"
	"slices"
)

// Entry is one key and value of a request's descriptor. Both are opaque bytes and need
// not be UTF-8.
type Entry struct{ Key, Value string }

// Rules are all domains in force at one time. They never change.
type Rules struct {
	domains map[string]*Domain
	names   []string
	rules   []*Rule
	states  []DomainState
	version string
}

// Domain is one domain of the rules.
type Domain struct {
	name  string
	root  children
	rules []*Rule
	keyer *keyer
	// nodes are what the domain was compiled from.
	nodes []*descriptor
	// prefix opens the key of each bucket of the domain.
	prefix string
}

// DomainState says what became of a domain that some file names.
type DomainState struct {
	// Domain is its name.
	Domain string
	// Files are the names of the files that speak of it, in order.
	Files []string
	// InForce reports whether any rules of it act.
	InForce bool
	// Stale reports whether those are not what the files say now, because of a mistake.
	Stale bool
}

// Domain finds a domain by its name; nil if no rules of it are in force.
func (r *Rules) Domain(name string) *Domain { return r.domains[name] }

// Domains lists the names of the domains in force, sorted. The caller owns the slice.
func (r *Rules) Domains() []string { return slices.Clone(r.names) }

// States lists every domain that a file names, in force or not, sorted by name. A file
// so broken that its domain can't be read is in none. The caller owns the slice.
func (r *Rules) States() []DomainState { return slices.Clone(r.states) }

// All walks the rules in order of ID: domains sorted by name, rules in file order.
func (r *Rules) All() iter.Seq[*Rule] { return slices.Values(r.rules) }

// Len is the number of rules.
func (r *Rules) Len() int { return len(r.rules) }

// Version is a short text that is equal for equal rules, whichever process loaded them.
func (r *Rules) Version() string { return r.version }

// Name is the domain's name.
func (d *Domain) Name() string { return d.name }
