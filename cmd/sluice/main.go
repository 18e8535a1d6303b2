// Command sluice is a global rate limit service for Envoy. Without arguments it serves;
// its other words check rules, try calls and ask for its health.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes of every sub-command.
const (
	exitOK    = 0
	exitError = 1 // it failed
	exitUsage = 2 // it was used wrongly
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], env{
		lookup: os.LookupEnv,
		stdout: os.Stdout,
		stderr: os.Stderr,
		notify: notify,
	}))
}

// env is what a sub-command sees of the world.
type env struct {
	lookup         func(string) (string, bool)
	stdout, stderr io.Writer
	// notify sends the process's signals to the channel until the function it returns
	// is called.
	notify func(chan<- os.Signal) (stop func())
}

// or gives a variable of the environment, or def where it is not set or empty.
func (e env) or(name, def string) string {
	if v, _ := e.lookup(name); v != "" {
		return v
	}
	return def
}

func notify(ch chan<- os.Signal) func() {
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return func() { signal.Stop(ch) }
}

// command is a sub-command: it answers the exit code.
type command struct {
	name, help string
	run        func(ctx context.Context, args []string, e env) int
}

func commands() []command {
	return []command{
		{"serve", "serve the rate limit service (the default)", serve},
		{"check", "load rules files as serve does and list every mistake", check},
		{"try", "send a real call to a running service and print the decision", try},
		{"probe", "ask a running service for its health, for health checks of containers", probe},
		{"version", "print the version", version},
	}
}

// run is the whole program but for the process around it.
func run(ctx context.Context, args []string, e env) int {
	if len(args) == 0 || len(args[0]) > 0 && args[0][0] == '-' && !asksHelp(args[0]) {
		return serve(ctx, args, e)
	}
	if asksHelp(args[0]) || args[0] == "help" {
		usage(e.stdout)
		return exitOK
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:], e)
		}
	}
	_, _ = fmt.Fprintf(e.stderr, "sluice: unknown command %q\n\n", args[0])
	usage(e.stderr)
	return exitUsage
}

func asksHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

func usage(w io.Writer) {
	_, _ = fmt.Fprint(w, "Sluice is a global rate limit service for Envoy.\n\nusage: sluice [command] [flags]\n\n")
	for _, c := range commands() {
		_, _ = fmt.Fprintf(w, "  %-8s  %s\n", c.name, c.help)
	}
	_, _ = fmt.Fprint(w, "\nsluice COMMAND -h lists a command's flags; those of serve are settings, each with an environment variable.\n")
}
