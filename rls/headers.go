package rls

import (
	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls/wire"
)

// HeaderNames are the names of the three headers that tell a client of its limit.
type HeaderNames struct{ Limit, Remaining, Reset string }

// append tells of one limit: of a denied call the one that denies longest, else the one
// with the least left, the first of equals.
func (h *HeaderNames) append(dst []byte, c *call) []byte {
	sl := scarcest(c)
	if c.denied {
		sl = longestWait(c.slots)
	}
	if sl == nil {
		return dst
	}
	dst = wire.AppendNumberHeader(dst, h.Limit, uint64(sl.requests))
	dst = wire.AppendNumberHeader(dst, h.Remaining, sl.remaining)
	return wire.AppendNumberHeader(dst, h.Reset, uint64(seconds(sl.reset)))
}

func scarcest(c *call) *slot {
	var least *slot
	for i := range c.slots {
		sl := &c.slots[i]
		if sl.kind != limited || c.dst[sl.take].Source == backend.DegradedAllow {
			continue
		}
		if least == nil || sl.remaining < least.remaining {
			least = sl
		}
	}
	return least
}

// appendRetryAfter appends the header of RFC 9110 section 10.2.3, in seconds and at least
// one. Envoy keeps ours where its own enable_retry_after_header is on as well.
func appendRetryAfter(dst []byte, denier *slot) []byte {
	wait := max(uint64(seconds(denier.reset)), 1)
	if denier.rule != nil {
		switch after := denier.rule.RetryAfter; {
		case after == descriptors.RetryOff:
			return dst
		case after != descriptors.RetryComputed:
			wait = uint64(after)
		}
	}
	return wire.AppendNumberHeader(dst, "Retry-After", wait)
}

// appendContentType appends the type of the body that appendBody appends. As everywhere,
// nothing of a client's may be in a header: Envoy writes it as it is.
func appendContentType(dst []byte, denier *slot) []byte {
	if b := denier.body(); b != nil {
		dst = wire.AppendHeader(dst, "content-type", b.ContentType)
	}
	return dst
}

// appendBody appends the rule's own text of a refusal.
func appendBody(dst []byte, denier *slot) []byte {
	if b := denier.body(); b != nil {
		dst = wire.AppendRawBody(dst, b.Text)
	}
	return dst
}

// body is what the slot, nil if nobody denies, says of a denial; nil for nothing.
func (sl *slot) body() *descriptors.Body {
	if sl == nil || sl.rule == nil {
		return nil
	}
	return sl.rule.Body
}
