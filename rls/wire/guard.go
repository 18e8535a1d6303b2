package wire

import "golang.org/x/net/http2"

// guard is what a peer may ask of the connection beside calls. Frames that do nothing for
// a call (SETTINGS, PING, resets, empty ones) are cheap to send and not to act on, so each
// is paid for from an account; calls and time fill it. A peer that does what it should
// never comes near its end: grpc-go pings as often as it calls, Envoy once a second.
type guard struct {
	credit int
	filled uint32 // tick
}

const (
	maxCredit  = 10_000
	perRequest = 10
	perTick    = 100
)

func newGuard(now uint32) guard { return guard{credit: maxCredit, filled: now} }

// earn pays in for a call.
func (g *guard) earn() { g.credit = min(g.credit+perRequest, maxCredit) }

func (g *guard) spend(n int, now uint32) error {
	if g.credit -= n; g.credit >= 0 {
		return nil
	}
	elapsed := min(now-g.filled, maxCredit/perTick)
	g.filled = now
	if g.credit += int(elapsed) * perTick; g.credit >= 0 {
		return nil
	}
	return connError{http2.ErrCodeEnhanceYourCalm, "too many frames that are no calls"}
}
