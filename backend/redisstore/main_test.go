package redisstore_test

import (
	"testing"

	"github.com/sluice-rls/sluice/internal/leak"
)

// TestMain fails the tests that leave a goroutine of this package or of its client behind.
func TestMain(m *testing.M) { leak.Main(m, "/redisstore", "go-redis") }
