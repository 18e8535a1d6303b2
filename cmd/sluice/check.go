package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"

	"github.com/sluice-rls/sluice/config"
	"github.com/sluice-rls/sluice/descriptors"
)

// check loads rules by the loader of serve and prints every mistake as
// file:line:column. It exits with 0 if there is none.
func check(_ context.Context, args []string, e env) int {
	f := flag.NewFlagSet("check", flag.ContinueOnError)
	f.SetOutput(e.stderr)
	f.Usage = func() {
		_, _ = fmt.Fprintln(e.stderr, "usage: sluice check [flags] FILE|DIR…\n\nIt obeys the environment variables of serve that change how rules load, MERGE_DOMAIN_CONFIG above all.")
		f.PrintDefaults()
	}
	strict := f.Bool("strict", false, "treat warnings as mistakes")
	merge := false
	for _, name := range []string{"merge-domain-config", "merge_domain_configs"} {
		f.BoolVar(&merge, name, false, "allow one domain in several files")
	}
	dir := f.String("config_dir", "", "a further `DIR` to load")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	paths := f.Args()
	if *dir != "" {
		paths = append(paths, *dir)
	}
	if len(paths) == 0 {
		_, _ = fmt.Fprintln(e.stderr, "sluice check: no FILE or DIR is given, as in sluice check examples/envoy/rules")
		return exitUsage
	}
	settings, _, err := config.Parse(nil, e.only("MERGE_DOMAIN_CONFIG", "DEFAULT_ALGORITHM", "HASH_KEYS", "HASH_SECRET"))
	if err != nil {
		_, _ = fmt.Fprintf(e.stderr, "sluice check: %v\n", err)
		return exitUsage
	}
	settings.MergeDomainConfig = settings.MergeDomainConfig || merge
	return checkPaths(paths, settings, *strict, e)
}

// only hides all of the environment but some variables.
func (e env) only(names ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if !slices.Contains(names, name) {
			return "", false
		}
		return e.lookup(name)
	}
}

func checkPaths(paths []string, settings config.Settings, strict bool, e env) int {
	sources, mistakes := readAll(paths, e.stderr)
	rules, problems := descriptors.NewLoader(loaderOptions(settings)).Load(sources)
	warnings := 0
	for _, p := range problems {
		if p.Warning && !strict {
			warnings++
			_, _ = fmt.Fprintf(e.stderr, "warning: %v\n", p)
			continue
		}
		mistakes++
		_, _ = fmt.Fprintln(e.stderr, p)
	}
	for _, hint := range rules.Hints() {
		_, _ = fmt.Fprintf(e.stderr, "hint: %v\n", hint)
	}
	if mistakes > 0 {
		_, _ = fmt.Fprintf(e.stderr, "%s, %s\n", plural(mistakes, "mistake"), plural(warnings, "warning"))
		return exitError
	}
	_, _ = fmt.Fprintf(e.stdout, "ok: %s in %s from %s, %s\n",
		plural(rules.Len(), "rule"), plural(len(rules.Domains()), "domain"), plural(len(sources), "file"), plural(warnings, "warning"))
	return exitOK
}

// readAll reads every rules file of the paths, telling w of those that can't be read.
func readAll(paths []string, w io.Writer) (sources []descriptors.Source, mistakes int) {
	for _, path := range paths {
		files, err := config.NewFolder(path, config.FolderOptions{}).Read()
		if err != nil {
			_, _ = fmt.Fprintln(w, err)
			mistakes++
		}
		if err == nil && len(files) == 0 {
			_, _ = fmt.Fprintf(w, "hint: %s: no *.yaml or *.yml file is there\n", path)
		}
		sources = append(sources, toSources(files)...)
	}
	return sources, mistakes
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
