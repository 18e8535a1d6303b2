//go:build integration && long

package integration

import "testing"

// TestRollingRestartAtFullRate is for a machine that has nothing else to do: Envoy, Redis,
// two replicas and the client need most of two processors.
func TestRollingRestartAtFullRate(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) { rollingRestart(t, startEdge(t), 2000, settings{"GRPC_ENGINE": engine}) })
	}
}
