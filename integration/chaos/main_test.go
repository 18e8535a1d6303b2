//go:build integration

package chaos

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// root is the checkout, seen from the working directory of the tests.
const root = "../.."

var (
	long   = flag.Bool("long", false, "let faults last six seconds, under more load")
	update = flag.Bool("update", false, "write the table into docs/reliability.md")

	// binary is the path of the sluice that TestMain builds.
	binary string
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		io.WriteString(os.Stderr, err.Error()+"\n") //nolint:errcheck // the exit code says it as well
		code = 1
	}
	os.Exit(code) //nolint:forbidigo // what TestMain is for
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "sluice-chaos-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary = filepath.Join(dir, "sluice")
	build := exec.Command("go", "build", "-o", binary, "./cmd/sluice")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return m.Run(), nil
}
