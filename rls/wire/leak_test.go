package wire_test

import (
	"testing"

	"github.com/sluice-rls/sluice/internal/leak"
)

// TestMain fails the tests that leave a goroutine of the server's behind.
func TestMain(m *testing.M) { leak.Main(m, "rls/wire.") }
