//go:build integration

package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-rls/sluice/internal/proc"
)

// step is one command of a page and the output that the page shows for it.
type step struct {
	line    int
	command string
	output  []string
}

// readPage returns the commands in the ```console blocks of a Markdown page: the lines
// that begin with "$ ", each with the lines after it that do not.
func readPage(t *testing.T, path ...string) []step {
	t.Helper()
	var steps []step
	inBlock, continued := false, false
	lines := bufio.NewScanner(strings.NewReader(mustRead(t, path...)))
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			inBlock, continued = line == "```console", false
		case !inBlock:
		case isCommand:
			steps = append(steps, step{line: number, command: command})
			continued = strings.HasSuffix(command, `\`)
		case len(steps) == 0:
			t.Fatalf("%v:%d: output before the first command", path, number)
		case continued:
			last := &steps[len(steps)-1]
			last.command += "\n" + line
			continued = strings.HasSuffix(line, `\`)
		default:
			last := &steps[len(steps)-1]
			last.output = append(last.output, line)
		}
	}
	return steps
}

// Every command of the README, from top to bottom, does what the README shows.
func TestReadme(t *testing.T) {
	t.Parallel()
	steps := readPage(t, "README.md")
	if len(steps) == 0 {
		t.Fatal("README.md has no commands")
	}
	lockFixedPorts(t)
	shell := newShell(t)
	for _, step := range steps {
		if err := shell.do(step); err != nil {
			t.Fatalf("README.md:%d: %s: %v", step.line, step.command, err)
		}
	}
}

// shell runs the commands of a page in a copy of the checkout, so that they may edit it.
type shell struct {
	t       *testing.T
	dir     string
	running []*proc.Process
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{t: t, dir: t.TempDir()}
	examples := filepath.Join("examples", "envoy")
	if err := os.CopyFS(filepath.Join(s.dir, examples), os.DirFS(filepath.Join(root, examples))); err != nil {
		t.Fatal(err)
	}
	compose := filepath.Join(s.dir, "docker-compose.yml")
	if err := os.WriteFile(compose, []byte(mustRead(t, "docker-compose.yml")), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

const goRun = "go run ./cmd/sluice"

// do runs a step as far as a test can: Docker's part is done by processes, go run's by
// the binary that was built from the same folder.
func (s *shell) do(step step) error {
	command, background := strings.CutSuffix(step.command, "&")
	command = strings.TrimSpace(command)
	switch {
	case command == "docker compose up" || command == "docker compose up -d" || command == "docker compose up -d --wait":
		for _, p := range startCompose(s.t, s.dir).services {
			s.running = append(s.running, p)
		}
		return nil
	case command == "docker compose down":
		s.stopAll()
		return nil
	case strings.HasPrefix(command, "docker "):
		return errors.New("no such Docker command is covered by a test")
	case strings.HasPrefix(command, "git ") || strings.HasPrefix(command, "cd "):
		return nil // the checkout is where this test runs
	case strings.HasPrefix(command, "make "):
		return makes(s.t, strings.TrimPrefix(command, "make "))
	case background || command == goRun || strings.HasPrefix(command, goRun+" -") || strings.HasPrefix(command, goRun+" serve"):
		return s.start(command, step.output)
	default:
		return s.run(command, step.output)
	}
}

// makes reports whether the Makefile has the target; `make test` runs this very test.
func makes(t *testing.T, target string) error {
	t.Helper()
	if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).MatchString(mustRead(t, "Makefile")) {
		return fmt.Errorf("the Makefile has no target %s", target)
	}
	if target == "test" {
		if recipe := mustFind(t, mustRead(t, "Makefile"), `(?m)^test:.*\n\t(.*)$`); recipe != ".ci/run" {
			return fmt.Errorf("its recipe is %q, want the whole gate, .ci/run", recipe)
		}
	}
	return nil
}

// start starts a command that goes on until it is stopped, and waits for the output.
func (s *shell) start(command string, output []string) error {
	s.t.Helper()
	o := proc.Options{Name: "readme", Path: "bash", Args: []string{"-c", "exec " + withBinary(command)}, Dir: s.dir, Env: s.env()}
	switch {
	case strings.Contains(command, goRun):
		if len(s.running) > 0 {
			return errors.New("its ports are taken by what the page started before and did not stop (docker compose down)")
		}
		mustBeFree(s.t, replica1Port, 8080, 6070)
		o.Ready = proc.Answers(local(8080, "/healthcheck"))
	case strings.Contains(command, "upstream.yaml"):
		o.Ready = proc.Answers(local(upstreamPort, "/"))
	case strings.Contains(command, "envoy.yaml"):
		o.Ready = proc.Answers(local(adminPort, "/ready"))
	}
	p := proc.Start(s.t, o)
	s.t.Cleanup(func() { p.Signal(syscall.SIGKILL) })
	s.running = append(s.running, p)
	return shows(p.Log(), output)
}

// run runs a command to its end.
func (s *shell) run(command string, output []string) error {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 6*patience)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", "set -o pipefail\n"+withBinary(command))
	c.Dir, c.Env = s.dir, append(os.Environ(), s.env()...)
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return shows(string(out), output)
}

func (s *shell) stopAll() {
	for _, p := range s.running {
		p.Signal(syscall.SIGKILL)
		p.Stop()
	}
	s.running = nil
}

// env has the programs of .cache/bin where a user has them installed.
func (s *shell) env() []string {
	bin := filepath.Dir(proc.Find(s.t, "envoy"))
	return []string{"PATH=" + bin + string(os.PathListSeparator) + os.ExpandEnv("$PATH")}
}

func withBinary(command string) string { return strings.ReplaceAll(command, goRun, binary) }

// shows checks that each line of the page's output is a line of the real one, numbers
// that differ from run to run aside. A line of dots stands for lines left out.
func shows(real string, page []string) error {
	lines := map[string]bool{}
	for line := range strings.Lines(real) {
		lines[timeless(line)] = true
	}
	for _, line := range page {
		if want := timeless(line); want != "" && want != "..." && !lines[want] {
			return fmt.Errorf("the page shows %q, which is not in the output:\n%s", line, real)
		}
	}
	return nil
}

var (
	numbers  = regexp.MustCompile(`[0-9]+(?:\.[0-9]+)?`)
	versions = regexp.MustCompile(`sluice (?:[0-9a-f]{12}(?:\+changes)?|v[0-9][^\s:]*|\(devel\)|unknown)(:| )`)
	dates    = regexp.MustCompile(`(?i)^date: .*`)
)

// timeless returns the line without what differs from run to run: counts and times, but
// not HTTP statuses, the date and the version of the build.
func timeless(line string) string {
	line = strings.Join(strings.Fields(line), " ")
	line = dates.ReplaceAllString(line, "date")
	line = versions.ReplaceAllString(line, "sluice 0$1")
	return numbers.ReplaceAllStringFunc(line, func(n string) string {
		if slices.Contains([]string{"200", "400", "401", "404", "429", "500"}, n) {
			return n
		}
		return "0"
	})
}

func TestReadPage(t *testing.T) {
	t.Parallel()
	f := func(real string, page []string, ok bool) {
		t.Helper()
		if err := shows(real, page); (err == nil) != ok {
			t.Errorf("shows(%q, %q) = %v, want ok %v", real, page, err, ok)
		}
	}
	f("HTTP/1.1 429 Too Many Requests\r\ndate: Mon\n", []string{"HTTP/1.1 429 Too Many Requests", "date: Tue", "..."}, true)
	f("HTTP/1.1 200 OK\n", []string{"HTTP/1.1 429 Too Many Requests"}, false)
	f("  213 200\n   87 429\n", []string{"    207 200", "     93 429"}, true)
	f("  213 200\n", []string{"    207 200", "     93 429"}, false)
	f("sluice 0123456789ab+changes: 9 rules\n", []string{"sluice v1.0.0: 9 rules"}, true)
}
