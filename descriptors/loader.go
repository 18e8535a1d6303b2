package descriptors

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-rls/sluice/backend"
)

// Source is the bytes of one file of rules.
type Source struct {
	// Name is the file's path as problems show it. Files are merged in its order.
	Name string
	// Data belongs to the caller; a Loader keeps nothing of it.
	Data []byte
	// Err says why the file is there and could not be read: a mistake of the file like any
	// other. Data is empty then.
	Err error
}

// Options are the settings of a Loader; the zero value is the default.
type Options struct {
	// MergeDomains lets several files speak of one domain. Without it that is a mistake
	// of each of them.
	MergeDomains bool
	// DefaultAlgorithm is that of limits which name none.
	DefaultAlgorithm backend.Algorithm
	// HashKeys keeps all values of requests out of bucket keys, see Rule.AppendKey; their
	// HMAC stands in their place.
	HashKeys bool
	// HashSecret keys the HMAC. It must be the same on all instances that share buckets,
	// and is copied. Nil is an empty secret.
	HashSecret []byte
}

// Loader makes Rules of files, again and again, and remembers what was last in order: a
// file with mistakes keeps the rules that last came from it, a domain whose files
// contradict each other keeps its last rules. It belongs to one goroutine at a time.
type Loader struct {
	options Options
	keyer   *keyer
	// files are the files of the last load, by name.
	files map[string]*source
	// inForce are the files whose trees make up each domain.
	inForce map[string][]*file
}

// source is what is known of one file.
type source struct {
	// last is the file as it is now, with its problems.
	last     *file
	problems []Problem
	ok       bool
	// good is the file as it last was without mistakes, nil if it never was.
	good *file
}

// NewLoader returns a Loader that has loaded nothing yet.
func NewLoader(options Options) *Loader {
	options.HashSecret = bytes.Clone(options.HashSecret)
	return &Loader{options: options, keyer: newKeyer(options.HashKeys, options.HashSecret)}
}

// Load makes Rules of the files that there are now; rules of a file that is not among
// them are gone. The Rules are never nil. The problems are all those of the files as they
// are now, warnings included, in order of place: a file or domain with a mistake is kept
// as it last was, and the others act. No file at all is no domain and no problem.
func (l *Loader) Load(sources []Source) (*Rules, []Problem) {
	names := l.read(sources)
	var problems []Problem
	groups := make(map[string][]*source)
	for _, name := range names {
		s := l.files[name]
		problems = append(problems, s.problems...)
		switch {
		case s.good != nil:
			groups[s.good.domain] = append(groups[s.good.domain], s)
		case s.last.domain != "":
			groups[s.last.domain] = append(groups[s.last.domain], s)
		}
	}
	rules := &Rules{domains: make(map[string]*Domain)}
	var seen []byte
	inForce := make(map[string][]*file, len(groups))
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		files, state, found := l.settle(name, groups[name])
		problems = append(problems, found...)
		rules.states = append(rules.states, state)
		if !state.InForce {
			continue
		}
		inForce[name] = files
		nodes, _ := mergeFiles(name, files)
		rules.add(compile(name, nodes, len(rules.rules), l.keyer))
		seen = fmt.Appendf(seen, "%q %d\n", name, l.options.DefaultAlgorithm)
		for _, f := range files {
			seen = append(seen, f.digest[:]...)
		}
	}
	l.inForce = inForce
	version := sha256.Sum256(seen)
	rules.version = hex.EncodeToString(version[:versionBytes])
	sortProblems(problems)
	return rules, problems
}

const versionBytes = 6

func (r *Rules) add(d *Domain) {
	r.domains[d.name] = d
	r.names = append(r.names, d.name)
	r.rules = append(r.rules, d.rules...)
}

// read parses the files that changed, forgets those that are gone, and returns the names
// in order. Of two sources of one name the later counts.
func (l *Loader) read(sources []Source) []string {
	files := make(map[string]*source, len(sources))
	for _, s := range sources {
		files[s.Name] = l.readOne(s, l.files[s.Name])
	}
	l.files = files
	return slices.Sorted(maps.Keys(files))
}

// readOne parses a file, unless it is as it was; old is what was known of it, or nil.
func (l *Loader) readOne(s Source, old *source) *source {
	now := new(source)
	if s.Err != nil {
		now.last = &file{name: s.Name}
		now.problems = []Problem{{File: s.Name, Message: s.Err.Error()}}
	} else {
		digest := sha256.Sum256(s.Data)
		if old != nil && old.last.digest == digest {
			return old
		}
		now.last, now.problems, now.ok = parseFile(s, l.options)
		now.last.digest = digest
	}
	switch {
	case now.ok:
		now.good = now.last
	case old != nil:
		now.good = old.good
	}
	return now
}

// settle decides which files make up a domain: those that speak of it now, or, if they
// contradict each other, those of the last load that are still there.
func (l *Loader) settle(domain string, speakers []*source) ([]*file, DomainState, []Problem) {
	state := DomainState{Domain: domain}
	var files []*file
	for _, s := range speakers {
		state.Files = append(state.Files, s.last.name)
		state.Stale = state.Stale || !s.ok
		if s.good != nil {
			files = append(files, s.good)
		}
	}
	var problems []Problem
	if len(files) > 1 && !l.options.MergeDomains {
		problems = sharedDomain(domain, files)
	} else if len(files) > 1 {
		_, problems = mergeFiles(domain, files)
	}
	if len(problems) > 0 {
		state.Stale = true
		files = l.remaining(domain)
	}
	state.InForce = len(files) > 0
	return files, state, problems
}

// remaining are the files that made up the domain at the last load and are still there,
// as they then were, unless they have since gone over to another domain.
func (l *Loader) remaining(domain string) []*file {
	return slices.DeleteFunc(slices.Clone(l.inForce[domain]), func(f *file) bool {
		now := l.files[f.name]
		return now == nil || now.good.domain != domain
	})
}

// sharedDomain reports at each file that others speak of its domain.
func sharedDomain(domain string, files []*file) []Problem {
	problems := make([]Problem, len(files))
	for i, f := range files {
		var others []string
		for _, other := range files {
			if other != f {
				others = append(others, other.name)
			}
		}
		slices.SortFunc(others, cmp.Compare)
		problems[i] = Problem{
			File: f.name, Line: int(f.domainAt.line), Column: int(f.domainAt.column), Path: oneLine(domain),
			Message: fmt.Sprintf("the domain is also in %s; keep it in one file, or let files be merged (MERGE_DOMAIN_CONFIG=true)",
				strings.Join(others, ", ")),
		}
	}
	return problems
}
