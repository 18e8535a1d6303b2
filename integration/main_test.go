//go:build integration

package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// root is the checkout, seen from the working directory of the tests.
const root = ".."

// binary is the path of the sluice that TestMain builds.
var binary string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		io.WriteString(os.Stderr, err.Error()+"\n") //nolint:errcheck // the exit code says it as well
		code = 1
	}
	os.Exit(code) //nolint:forbidigo // what TestMain is for
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "sluice-integration-")
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
