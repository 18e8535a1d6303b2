package descriptors

import (
	"fmt"
	"strings"

	"github.com/sluice-rls/sluice/backend"
)

// A burst of more than hintSeconds of its rate is pointed out, of more than
// strongSeconds with emphasis.
const (
	hintSeconds   = 3
	strongSeconds = 10
)

// Hints lists what is in order and yet may not be meant: bursts far above the rate,
// modes without a limit, wildcards that an earlier one hides, replacements of rules that
// the domain does not have. They are warnings and no part of what Load returns.
func (r *Rules) Hints() []Problem {
	var hints []Problem
	for _, name := range r.names {
		d := r.domains[name]
		hints = append(hints, listHints(d.nodes, (&scope{}).below(oneLine(name)))...)
		hints = append(hints, d.burstHints()...)
		hints = append(hints, d.logHints()...)
		hints = append(hints, d.replaceHints()...)
	}
	sortProblems(hints)
	return hints
}

func (r *Rule) hint(field, format string, args ...any) Problem {
	s := (&scope{}).below(oneLine(r.Domain))
	for _, l := range r.levels {
		s = s.below((&descriptor{key: l.key, value: l.value}).place())
	}
	return Problem{
		File: r.File, Line: r.Line, Column: r.Column, Path: s.field("rate_limit").field(field).String(),
		Message: fmt.Sprintf(format, args...), Warning: true,
	}
}

// burstHints looks at each capacity beside its rate. Those that no file sets are told of
// once a domain: they are what the reference's files look like.
func (d *Domain) burstHints() []Problem {
	var hints []Problem
	var first *Rule
	unset := 0
	for _, r := range d.rules {
		seconds := burstSeconds(r.Limit)
		switch {
		case seconds <= hintSeconds || r.Limit.Burst == 1:
		case !r.BurstWritten:
			unset++
			if first == nil {
				first = r
			}
		case seconds > strongSeconds:
			hints = append(hints, r.hint("burst", "%d is far above the rate: %.0f s of it may pass at once, and up to %d in the first %s",
				r.Limit.Burst, seconds, r.Limit.Burst+r.Limit.Requests, period(r)))
		default:
			hints = append(hints, r.hint("burst", "%d is above %d s of the rate: up to %d may pass in the first %s",
				r.Limit.Burst, hintSeconds, r.Limit.Burst+r.Limit.Requests, period(r)))
		}
	}
	if unset > 0 {
		hints = append(hints, first.hint("burst", "not set in %d of the domain's rules, this one first: all of a period may pass at once, up to %d in the first %s here; set burst for an even flow",
			unset, first.Limit.Burst+first.Limit.Requests, period(first)))
	}
	return hints
}

// logHints looks at logs that keep an entry for each of very many requests.
func (d *Domain) logHints() []Problem {
	var hints []Problem
	for _, r := range d.rules {
		if r.Limit.Algorithm == backend.SlidingLog && r.Limit.Requests > hintEntries {
			hints = append(hints, r.hint("algorithm", "sliding_log keeps an entry for each of up to %d requests, about 130 bytes in Redis and 24 in the process; sliding_window keeps two numbers",
				r.Limit.Requests))
		}
	}
	return hints
}

// hintEntries is the most entries of a log that nobody is told of.
const hintEntries = 100_000

// burstSeconds is how many seconds of the rate a capacity is worth, 0 where the algorithm
// has none apart from its rate.
func burstSeconds(l backend.Limit) float64 {
	if l.Requests == 0 || !hasBurst(l.Algorithm) {
		return 0
	}
	return float64(l.Burst) * l.Period.Seconds() / float64(l.Requests)
}

func period(r *Rule) string {
	unit := strings.ToLower(r.Unit.String())
	if r.UnitMultiplier == 1 {
		return unit
	}
	return fmt.Sprintf("%d × %s", r.UnitMultiplier, unit)
}

func (d *Domain) replaceHints() []Problem {
	names := make(map[string]bool)
	for _, r := range d.rules {
		names[r.Name] = true
	}
	var hints []Problem
	for _, r := range d.rules {
		for _, name := range r.Replaces {
			if !names[name] {
				hints = append(hints, r.hint("replaces", "no rule of the domain has the name %s", shown(name)))
			}
		}
	}
	return hints
}

// listHints looks at the descriptors of one list and of those below.
func listHints(list []*descriptor, s *scope) []Problem {
	var hints []Problem
	// whole has, by key, the earlier wildcards that take all values of a prefix.
	whole := make(map[string]*prefixes)
	for order, d := range list {
		here := s.below(d.place())
		if modes := d.modes(); d.rule == nil && len(modes) > 0 {
			hints = append(hints, d.hint(here, "%s without rate_limit has no effect: it acts where the limit is", strings.Join(modes, ", ")))
		}
		if !strings.Contains(d.key, star) && strings.Contains(d.value, star) {
			if hider := hiddenBy(d, order, whole); hider != nil {
				hints = append(hints, d.hint(here, "never reached: %s comes first and takes the same values; put the narrower one first",
					shown(hider.value.prefix+star)))
			}
		}
		hints = append(hints, listHints(d.children, here)...)
	}
	return hints
}

// hiddenBy finds an earlier wildcard that takes every value that d's does, else
// remembers d's if it can hide others.
func hiddenBy(d *descriptor, order int, whole map[string]*prefixes) *wildcard {
	same := whole[d.key]
	if same == nil {
		same = new(prefixes)
		whole[d.key] = same
	}
	p := newPattern(d.value)
	hider := same.find(p.prefix)
	if hider == nil && p.suffix == "" && len(p.inner) == 0 {
		same.add(wildcard{value: p, order: order})
	}
	return hider
}

// modes names what is set on a descriptor and only acts with a limit.
func (d *descriptor) modes() []string {
	var modes []string
	for _, m := range []struct {
		set  bool
		name string
	}{
		{d.shadow, "shadow_mode"}, {d.quota, "quota_mode"}, {d.detailed, "detailed_metric"}, {d.metadata != nil, "metadata"},
	} {
		if m.set {
			modes = append(modes, m.name)
		}
	}
	return modes
}

func (d *descriptor) hint(s *scope, format string, args ...any) Problem {
	return Problem{
		File: d.file.name, Line: int(d.at.line), Column: int(d.at.column), Path: s.String(),
		Message: fmt.Sprintf(format, args...), Warning: true,
	}
}
