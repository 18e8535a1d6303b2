package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
)

// Parse makes the settings from the command line (without the program's name) and the
// environment, which lookup is asked for by name as os.LookupEnv is. A flag goes before
// the environment, that before the default; an empty text counts as not given.
//
// The error joins all mistakes, each with the flag or variable, the value and what is
// allowed. It is flag.ErrHelp if help was asked for. Warnings are for the log. Parse
// looks at the files that the settings name, and says so where one is missing.
func Parse(args []string, lookup func(string) (string, bool)) (Settings, []string, error) {
	p := &parser{given: map[string]string{}}
	p.groups = p.table()
	flags, err := p.flags(args)
	if errors.Is(err, flag.ErrHelp) {
		return Settings{}, nil, flag.ErrHelp
	}
	if err != nil {
		p.errs = append(p.errs, err)
	}
	for r := range p.rows() {
		p.read(r, flags, lookup)
	}
	p.resolveRedis()
	p.resolvePerSecond()
	p.s.FailFast = p.start == "fail-fast"
	p.resolveServerTLS()
	p.resolvePrometheus()
	p.resolveHeaders()
	p.resolveShutdown()
	p.resolveRules()
	if err := errors.Join(p.errs...); err != nil {
		return Settings{}, nil, err
	}
	return p.s, warnings(lookup), nil
}

// A parser gathers what Parse makes.
type parser struct {
	s             Settings
	redis, second redisTexts
	perSecond     bool
	serverTLS     bool
	usePrometheus bool
	backend       string
	start         string

	groups []group
	given  map[string]string // by row id, the name that the user gave it by: PORT or -port
	errs   []error
}

// rows walks over the table.
func (p *parser) rows() iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for _, g := range p.groups {
			for i := range g.rows {
				if !yield(&g.rows[i]) {
					return
				}
			}
		}
	}
}

// read sets one row from the first of flag, environment and default that has a text.
func (p *parser) read(r *row, flags map[string]string, lookup func(string) (string, bool)) {
	if r.def != "" {
		if err := r.value.set(r.def); err != nil {
			panic(fmt.Sprintf("config: default of %s: %q %v", r.id(), r.def, err))
		}
	}
	text, name := flags[r.flag()], "-"+r.flag()
	if text == "" && r.env != "" {
		name = r.env
		text, _ = lookup(r.env)
	}
	if text == "" {
		return
	}
	p.given[r.id()] = name
	if err := r.value.set(text); err != nil {
		p.errs = append(p.errs, fmt.Errorf("%s: %q %w", name, r.shown(text), err))
		return
	}
	p.s.given = append(p.s.given, given{r.id(), r.shown(text)})
}

// has reports whether a row was given.
func (p *parser) has(id string) bool { return p.given[id] != "" }

// hasAny reports whether any of the rows was given.
func (p *parser) hasAny(ids []string) bool { return slices.ContainsFunc(ids, p.has) }

// fail reports a mistake of the row id, under the name by which the user gave it.
func (p *parser) fail(id, format string, args ...any) {
	name := p.given[id]
	if name == "" {
		name = id
	}
	p.errs = append(p.errs, fmt.Errorf("%s: %w", name, fmt.Errorf(format, args...)))
}

// flags reads the command line into texts by flag name.
func (p *parser) flags(args []string) (map[string]string, error) {
	texts := map[string]string{}
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for r := range p.rows() {
		set.Var(flagText{texts, r}, r.flag(), "")
	}
	var errs []error
	for err := set.Parse(args); err != nil; err = set.Parse(args) {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		// The flag package stops at a mistake, with what it had not read yet in Args.
		bad := args[len(args)-set.NArg()-1]
		args = set.Args()
		name, _, valued := strings.Cut(strings.TrimLeft(bad, "-"), "=")
		if set.Lookup(name) == nil {
			err = fmt.Errorf("there is no such flag, the nearest is -%s", p.nearest(name))
			if !valued && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				args = args[1:] // the value of the flag that is not there
			}
		}
		errs = append(errs, fmt.Errorf("-%s: %w", name, err))
	}
	if set.NArg() > 0 {
		errs = append(errs, fmt.Errorf("argument %q: only flags are taken, and true or false is given to one as -flag=false", set.Arg(0)))
	}
	return texts, errors.Join(errs...)
}

// flagText keeps the text of a flag for its row.
type flagText struct {
	texts map[string]string
	row   *row
}

func (f flagText) Set(text string) error { f.texts[f.row.flag()] = text; return nil }
func (f flagText) String() string        { return "" }
func (f flagText) IsBoolFlag() bool      { return f.row.value.boolean }

// nearest is the flag most like name.
func (p *parser) nearest(name string) string {
	best, least := "", len(name)+100
	for r := range p.rows() {
		if d := distance(name, r.flag()); d < least {
			best, least = r.flag(), d
		}
	}
	return best
}

// distance is the least number of bytes to insert, delete or change that makes b of a.
func distance(a, b string) int {
	line := make([]int, len(b)+1)
	for j := range line {
		line[j] = j
	}
	for i := range len(a) {
		diagonal := line[0]
		line[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = line[j+1]
			line[j+1] = min(cost, line[j]+1, diagonal+1)
		}
	}
	return line[len(b)]
}

// warnings is one line that lists what was set and does nothing.
func warnings(lookup func(string) (string, bool)) []string {
	var names []string
	for _, name := range idle {
		if text, _ := lookup(name); text != "" {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	return []string{"accepted, without effect yet: " + strings.Join(names, ", ")}
}

// resolvePrometheus drops the address of a listener that nobody asked for.
func (p *parser) resolvePrometheus() {
	on := p.has("PROMETHEUS_ADDR")
	if p.has("USE_PROMETHEUS") {
		on = p.usePrometheus
	}
	if !on {
		p.s.PrometheusAddr, p.s.PrometheusPath = "", ""
	}
}

// resolveHeaders refuses one header for two values.
func (p *parser) resolveHeaders() {
	names := []struct{ env, header string }{
		{"LIMIT_LIMIT_HEADER", p.s.LimitHeader},
		{"LIMIT_REMAINING_HEADER", p.s.RemainingHeader},
		{"LIMIT_RESET_HEADER", p.s.ResetHeader},
	}
	for i, n := range names {
		for _, m := range names[:i] {
			if strings.EqualFold(n.header, m.header) {
				p.fail(n.env, "%q is the header of %s too", n.header, m.env)
			}
		}
	}
}

// resolveShutdown refuses a delay that leaves the calls in flight no time.
func (p *parser) resolveShutdown() {
	const delay, timeout, why = "DRAIN_DELAY", "SHUTDOWN_TIMEOUT", "the calls in flight have the difference"
	switch d, most := p.s.DrainDelay, p.s.ShutdownTimeout; {
	case d < most:
	case p.has(delay):
		p.fail(delay, "%v is not below %s, %v: %s", d, timeout, most, why)
	default:
		p.fail(timeout, "%v is not above %s, %v: %s", most, delay, d, why)
	}
}

// cause is an error of the file system without its operation and path, for messages
// that name the path themselves.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
