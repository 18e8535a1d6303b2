package proc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-rls/sluice/internal/proc"
)

func TestStartEnvoy(t *testing.T) {
	port := proc.FreePort(t)
	admin := fmt.Sprintf("127.0.0.1:%d", port)
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	text := fmt.Sprintf("admin: { address: { socket_address: { address: 127.0.0.1, port_value: %d } } }\n", port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e := proc.StartEnvoy(t, proc.EnvoyOptions{Config: config, Admin: admin})
	if got := e.Stat("server.live"); got != 1 {
		t.Errorf(`Stat("server.live") = %d, want 1`, got)
	}
	if got := e.Stats(`server\.(live|concurrency|nothing)`); len(got) != 2 || got["server.concurrency"] != 2 {
		t.Errorf("Stats = %v, want server.live 1 and server.concurrency 2", got)
	}
	if got := e.Stat("no.such.stat"); got != 0 {
		t.Errorf(`Stat("no.such.stat") = %d, want 0`, got)
	}
	e.Stop()
	if err := e.Wait(); err != nil {
		t.Errorf("Wait() = %v, want nil", err)
	}
	if err := proc.Answers("http://" + admin + "/ready")(t.Context()); err == nil {
		t.Error("Envoy answers after Stop")
	}
}
