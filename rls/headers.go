package rls

import (
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-rls/sluice/descriptors"
)

// HeaderNames are the names of the three headers that tell a client of its limit.
type HeaderNames struct{ Limit, Remaining, Reset string }

// add tells of one limit: of a denied call the one that denies longest, else the one
// with the least left, the first of equals.
func (h *HeaderNames) add(r *rlsv3.RateLimitResponse, c *call) {
	sl := scarcest(c)
	if c.denied {
		sl = longestWait(c.slots)
	}
	if sl == nil {
		return
	}
	addHeader(r, h.Limit, uint64(sl.requests))
	addHeader(r, h.Remaining, sl.remaining)
	addHeader(r, h.Reset, uint64(seconds(sl.reset)))
}

func scarcest(c *call) *slot {
	var least *slot
	for i := range c.slots {
		sl := &c.slots[i]
		if sl.kind != limited || c.degraded && sl.requests > 0 {
			continue
		}
		if least == nil || sl.remaining < least.remaining {
			least = sl
		}
	}
	return least
}

// addRetryAfter adds the header of RFC 9110 section 10.2.3, in seconds and at least
// one. Envoy keeps ours where its own enable_retry_after_header is on as well.
func addRetryAfter(r *rlsv3.RateLimitResponse, denier *slot) {
	wait := max(uint64(seconds(denier.reset)), 1)
	if denier.rule != nil {
		switch after := denier.rule.RetryAfter; {
		case after == descriptors.RetryOff:
			return
		case after != descriptors.RetryComputed:
			wait = uint64(after)
		}
	}
	addHeader(r, "Retry-After", wait)
}

// addBody adds the rule's own text of a refusal.
func addBody(r *rlsv3.RateLimitResponse, denier *slot) {
	if denier.rule == nil || denier.rule.Body == nil {
		return
	}
	body := denier.rule.Body
	r.RawBody = []byte(body.Text)
	appendHeader(r, "content-type", body.ContentType)
}

func addHeader(r *rlsv3.RateLimitResponse, name string, value uint64) {
	appendHeader(r, name, strconv.FormatUint(value, 10))
}

// appendHeader adds a response header. Envoy writes the value as it is, so nothing of a
// client's may come here.
func appendHeader(r *rlsv3.RateLimitResponse, name, value string) {
	r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, &corev3.HeaderValue{Key: name, Value: value})
}
