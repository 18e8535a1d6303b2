package rls

import (
	"math"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/rls/wire"
)

// answer appends the reply: a status for each descriptor, in order, and one code.
func (c *call) answer(dst []byte) []byte {
	for i := range c.slots {
		if sl := &c.slots[i]; sl.kind == limited {
			sl.judge(&c.takes[sl.take], &c.dst[sl.take])
		}
	}
	c.denied = denies(c.slots)
	dst = wire.AppendOverallCode(dst, c.denied)
	for i := range c.slots {
		dst = c.appendStatus(dst, &c.slots[i])
	}
	var denier *slot
	if c.denied {
		denier = longestWait(c.slots)
		dst = appendRetryAfter(dst, denier)
		dst = appendContentType(dst, denier)
	}
	if names := c.s.opts.Headers; names != nil {
		dst = names.append(dst, c)
	}
	dst = appendBody(dst, denier)
	if c.s.opts.DynamicMetadata {
		dst = c.appendMetadata(dst)
	}
	return dst
}

// judge turns the decision about a bucket into this descriptor's own: another one may
// have asked for the same bucket in the same call.
func (sl *slot) judge(take *backend.Take, d *backend.Decision) {
	switch {
	case sl.negative, d.Source == backend.DegradedAllow:
		sl.over = false
	case d.Source == backend.DegradedDeny:
		sl.over = true
	case sl.look() && !take.Look():
		before := backend.Decision{Level: d.Level + float64(d.Charged)}
		sl.over = before.Remaining() == 0
	default:
		sl.over = !d.OK
	}
	sl.remaining = d.Remaining()
	sl.reset = d.Full
	if sl.over {
		sl.reset = d.Wait
	}
}

// denies reports whether the slots deny their call: one that enforces is over, or there
// are quota rules and all of them are over.
func denies(slots []slot) bool {
	quotas, over := 0, 0
	for i := range slots {
		sl := &slots[i]
		if sl.kind != limited {
			continue
		}
		switch {
		case sl.mode == backend.Quota:
			quotas++
			if sl.over {
				over++
			}
		case sl.mode == backend.Enforce && sl.over:
			return true
		}
	}
	return quotas > 0 && quotas == over
}

// longestWait is the slot that speaks for a denied call: of those that deny it, the one
// that will pass last.
func longestWait(slots []slot) *slot {
	var longest *slot
	for i := range slots {
		sl := &slots[i]
		if sl.kind == limited && sl.over && sl.mode != backend.Shadow && (longest == nil || sl.reset > longest.reset) {
			longest = sl
		}
	}
	return longest
}

// appendStatus appends one descriptor's DescriptorStatus. There is a current_limit only
// where a limit applied and its bucket was heard, since Envoy makes headers of it.
func (c *call) appendStatus(dst []byte, sl *slot) []byte {
	var st wire.Status
	switch {
	case sl.kind == unlimited:
		st.Remaining = math.MaxUint32
	case sl.kind != limited, c.dst[sl.take].Source == backend.DegradedAllow:
	default:
		st.Over = sl.over && (sl.rule == nil || !sl.rule.Shadow)
		st.Remaining = uint32(min(sl.remaining, math.MaxUint32))
		st.ResetSeconds = seconds(sl.reset)
		if sl.rule != nil {
			st.Limit = c.set.limits[sl.rule.ID]
		} else {
			c.limit = wire.AppendLimit(c.limit[:0], sl.requests, uint32(sl.unit), sl.multiplier, "")
			st.Limit = c.limit
		}
	}
	return wire.AppendStatus(dst, &st)
}

// seconds rounds up, since Envoy cuts fractions off: a client that waits must not come
// too early.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
