package rls

import (
	"time"

	"github.com/sluice-rls/sluice/rls/wire"
)

// Switch is what an operator says of all calls at once, whatever the rules say.
type Switch uint32

// The switches. The zero value leaves calls to the rules.
const (
	// EnforceAll is as the rules say.
	EnforceAll Switch = iota
	// ShadowAll asks the buckets and counts what they say, and answers OK.
	ShadowAll
	// AllowAll answers OK, and asks nothing.
	AllowAll
	// DenyAll answers OVER_LIMIT, and asks nothing.
	DenyAll
)

// SetSwitch changes the switch for the calls that come from now on.
func (s *Service) SetSwitch(to Switch) { s.operator.Store(uint32(to)) }

// Switch is the switch in force.
func (s *Service) Switch() Switch { return Switch(s.operator.Load()) }

// decides reports whether there is nothing to ask any more.
func (sw Switch) decides() bool { return sw == AllowAll || sw == DenyAll }

// retryDenied is the Retry-After of a call that was denied by a switch: nobody knows when
// it will be turned back.
const retryDenied = time.Second

// appendSwitched appends the answer of a call that the switch decides.
func (c *call) appendSwitched(dst []byte) []byte {
	c.denied = c.switched == DenyAll
	dst = wire.AppendOverallCode(dst, c.denied)
	st := wire.Status{Over: c.denied}
	if c.denied {
		st.ResetSeconds = seconds(retryDenied)
	}
	for range c.req.Descriptors {
		dst = wire.AppendStatus(dst, &st)
	}
	if c.denied {
		dst = appendRetryAfter(dst, &slot{reset: retryDenied})
	}
	return dst
}
