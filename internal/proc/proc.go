// Package proc starts one real process for a test: it finds the program, gives it a
// free port, waits until it is ready, keeps its log, shows the log when the test fails,
// and ends the process with the test.
//
// Everything here takes the test that owns the process. What a helper cannot do ends
// that test, so nothing returns an error but Wait, whose answer is a test's business.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a process may take to become ready or to say something, unless
// the test's own deadline comes first.
const patience = 30 * time.Second

// grace is how long a process may take to end after SIGTERM before it is killed.
const grace = 5 * time.Second

// Find returns the path of a program that a test needs, such as "redis-server": the
// value of SLUICE_REDIS_SERVER (upper case, "-" as "_") if set, else what PATH has, else
// .cache/bin/redis-server below the module's root. Without the program the test is
// skipped, or failed where the environment has CI=true.
func Find(tb testing.TB, program string) string {
	tb.Helper()
	variable := "SLUICE_" + strings.ToUpper(strings.ReplaceAll(program, "-", "_"))
	if path, ok := os.LookupEnv(variable); ok && path != "" {
		return path
	}
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	if root, err := moduleRoot(); err == nil {
		path := filepath.Join(root, ".cache", "bin", program)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	if ci, _ := os.LookupEnv("CI"); ci == "true" {
		tb.Fatalf("finding %q: not in %s, PATH or .cache/bin", program, variable)
	}
	tb.Skipf("no %s: set %s to its path", program, variable)
	return ""
}

// moduleRoot walks up from the working directory to the folder of go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("finding go.mod: none above the working directory")
		}
		dir = up
	}
}

// Options says what to start. Path is required.
type Options struct {
	// Name is the name of the log; the base of Path if empty.
	Name string
	// Path is the program, Args what it is given.
	Path string
	Args []string
	// Env is added to the environment of the test.
	Env []string
	// Dir is the working directory; that of the test if empty.
	Dir string
	// Ready is asked again and again until it returns nil; its last error is the reason
	// of a start that failed. Nil means ready at once.
	Ready func(ctx context.Context) error
}

// Process is a running program. Its methods are safe for concurrent use.
type Process struct {
	tb   testing.TB
	name string
	cmd  *exec.Cmd
	log  *logbook
	done chan struct{} // closed once err is set
	err  error
}

// Start starts a process and returns once it is ready. The process ends with the test;
// its log is in the test's artifact folder as Name.log, and in the test's output if the
// test failed.
func Start(tb testing.TB, o Options) *Process {
	tb.Helper()
	p, err := start(tb, o)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// start is Start for callers that can try again.
func start(tb testing.TB, o Options) (*Process, error) {
	tb.Helper()
	if o.Name == "" {
		o.Name = filepath.Base(o.Path)
	}
	file, err := os.CreateTemp(tb.ArtifactDir(), o.Name+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", o.Name, err)
	}
	p := &Process{tb: tb, name: o.Name, log: newLogbook(file), done: make(chan struct{})}
	// Not exec.CommandContext: a test's context is over before its cleanups run, and
	// would kill the process where SIGTERM is asked of it.
	p.cmd = exec.Command(o.Path, o.Args...) //nolint:noctx // ended by Stop
	p.cmd.Env = append(os.Environ(), o.Env...)
	p.cmd.Dir = o.Dir
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.WaitDelay = grace
	p.cmd.SysProcAttr = diesWithParent()
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", o.Name, err), file.Close())
	}
	go func() {
		p.err = p.cmd.Wait()
		p.log.close()
		close(p.done)
	}()
	tb.Cleanup(func() {
		p.Stop()
		if tb.Failed() {
			tb.Logf("log of %s:\n%s", p.name, p.log.tail(32<<10))
		}
	})
	if o.Ready == nil {
		return p, nil
	}
	ctx, cancel := patient(tb)
	defer cancel()
	return p, p.poll(ctx, "waiting until "+p.name+" is ready", o.Ready)
}

// poll asks again and again until f has no complaint, the process has ended or ctx is
// over.
func (p *Process) poll(ctx context.Context, doing string, f func(context.Context) error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s: it ended: %w\n%s", doing, errors.Join(p.err, err), p.log.tail(4<<10))
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w\n%s", doing, ctx.Err(), err, p.log.tail(4<<10))
		case <-tick.C:
		}
	}
}

// patient returns a context that lasts for patience, or until shortly before the test
// itself would be aborted.
func patient(tb testing.TB) (context.Context, context.CancelFunc) {
	tb.Helper()
	end := time.Now().Add(patience)
	if d, ok := tb.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := d.Deadline(); ok && at.Add(-grace).Before(end) {
			end = at.Add(-grace)
		}
	}
	return context.WithDeadline(context.WithoutCancel(tb.Context()), end)
}

// Pid is the number of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal; to a process that has ended it does nothing.
func (p *Process) Signal(s os.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Errorf("sending %v to %s: %v", s, p.name, err)
	}
}

// Wait waits for the end of the process and returns what exec.Cmd.Wait says of it: nil
// for exit code 0, an *exec.ExitError for others.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Done is closed once the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop ends the process, also a stopped one: SIGTERM first, SIGKILL for one that does
// not obey within five seconds. It returns once the process has ended.
func (p *Process) Stop() {
	p.tb.Helper()
	select {
	case <-p.done:
		return
	default:
	}
	p.Signal(syscall.SIGCONT)
	p.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.Signal(syscall.SIGKILL)
		<-p.done
	}
}

// Log returns what the process has written so far to its standard output and error.
func (p *Process) Log() string { return p.log.String() }

// WaitLog waits until a line of the log matches the regular expression and returns that
// line. A process that ends before ends the test.
func (p *Process) WaitLog(re string) string {
	p.tb.Helper()
	ctx, cancel := patient(p.tb)
	defer cancel()
	line, err := p.log.wait(ctx, re)
	if err != nil {
		p.tb.Fatalf("waiting for %q in the log of %s: %v\n%s", re, p.name, err, p.log.tail(4<<10))
	}
	return line
}
