package rls

import (
	"math"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-rls/sluice/backend"
)

// answer makes the reply: a status for each descriptor, in order, and one code.
func (c *call) answer(s *Service) *rlsv3.RateLimitResponse {
	for i := range c.slots {
		if sl := &c.slots[i]; sl.kind == limited {
			sl.judge(&c.takes[sl.take], &c.dst[sl.take])
		}
	}
	c.denied = denies(c.slots)
	r := &rlsv3.RateLimitResponse{
		OverallCode: rlsv3.RateLimitResponse_OK,
		Statuses:    make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(c.slots)),
	}
	if c.denied {
		r.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	for i := range c.slots {
		r.Statuses[i] = c.status(&c.slots[i])
	}
	if c.denied {
		denier := longestWait(c.slots)
		addRetryAfter(r, denier)
		addBody(r, denier)
	}
	if s.opts.Headers != nil {
		s.opts.Headers.add(r, c)
	}
	if s.opts.DynamicMetadata {
		r.DynamicMetadata = dynamicMetadata(c)
	}
	return r
}

// judge turns the decision about a bucket into this descriptor's own: another one may
// have asked for the same bucket in the same call.
func (sl *slot) judge(take *backend.Take, d *backend.Decision) {
	switch {
	case sl.negative:
		sl.over = false
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

// status is one descriptor's DescriptorStatus. There is a current_limit only where a
// limit applied and its bucket was heard, since Envoy makes headers of it.
func (c *call) status(sl *slot) *rlsv3.RateLimitResponse_DescriptorStatus {
	st := &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
	switch {
	case sl.kind == unlimited:
		st.LimitRemaining = math.MaxUint32
		return st
	case sl.kind != limited, c.degraded && sl.requests > 0:
		return st
	}
	if sl.over && (sl.rule == nil || !sl.rule.Shadow) {
		st.Code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	st.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{
		RequestsPerUnit: sl.requests,
		Unit:            rlsv3.RateLimitResponse_RateLimit_Unit(sl.unit),
	}
	if sl.multiplier > 1 {
		st.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(sl.multiplier)
	}
	if sl.rule != nil {
		st.CurrentLimit.Name = sl.rule.Name
	}
	st.LimitRemaining = uint32(min(sl.remaining, math.MaxUint32))
	st.DurationUntilReset = &durationpb.Duration{Seconds: seconds(sl.reset)}
	return st
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
