package descriptors

import (
	"github.com/sluice-rls/sluice/backend"
)

// Rule is one limit of the rules, with all that a call needs to know of it. It is made
// by a Loader and never changes; its slices, map and pointers are shared and read only.
type Rule struct {
	// ID numbers the rules of one Rules from 0, without gaps. It differs from one load
	// to the next.
	ID int
	// Domain is the domain's name.
	Domain string
	// Path leads to the rule, as in "api_key=shop-a > route=POST /orders": keys alone
	// where a level takes any value, wildcards as written. It is valid UTF-8 and of the
	// file's making alone, so it is fit for a label.
	Path string
	// File, Line and Column are where the descriptor begins that carries the limit.
	File         string
	Line, Column int

	// Limit is what the store is asked for. A limit of no requests is a ban, which is
	// decided without the store; for an Unlimited rule it is zero.
	Limit backend.Limit
	// RequestsPerUnit, Unit and UnitMultiplier (1 if not written) are the limit as
	// written, for the answer's current_limit.
	RequestsPerUnit uint32
	Unit            Unit
	UnitMultiplier  uint32
	// BurstWritten reports whether the file sets the capacity, rather than leaving it to the
	// algorithm.
	BurstWritten bool

	// Name is what Replaces of other rules and current_limit.name refer to; empty if
	// the file gives none. It holds no control characters, quotes or backslashes, since
	// Envoy writes it into a header as it is.
	Name string
	// Replaces names the rules that this one, matched, takes out of the same call.
	Replaces []string
	// Unlimited passes every call, without a bucket.
	Unlimited bool
	// Shadow counts and reports, and never denies.
	Shadow bool
	// Quota denies only together with every other quota rule of the call.
	Quota bool
	// DetailedMetric puts the request's values of all levels into the metric's name.
	DetailedMetric bool
	// PerValueMetric reports whether the names by AppendStatName and AppendLabel
	// differ from one request to another; otherwise they may be made once.
	PerValueMetric bool

	// Overflow says what becomes of a charge larger than what is left.
	Overflow backend.Overflow
	// OnFailure decides while the store is away.
	OnFailure OnFailure
	// Prefetch allows tokens to be fetched ahead of use; false where the file says off.
	Prefetch bool
	// RetryAfter is what a denial says in Retry-After.
	RetryAfter RetryAfter
	// Body is what a denial carries, nil for none.
	Body *Body
	// Metadata is handed to Envoy while the descriptor passes. Its values are nil,
	// bool, float64, string, []any and map[string]any, as protobuf's Struct has them.
	// Nil if the file has none.
	Metadata map[string]any

	levels []*level
	domain *Domain
}

// OnFailure is what a rule decides while the store is away.
type OnFailure uint8

const (
	// FailDefault leaves it to the process's setting.
	FailDefault OnFailure = iota
	// FailLocal counts in a bucket of the process with its share of rate and burst.
	FailLocal
	// FailAllow passes every call.
	FailAllow
	// FailDeny denies every call.
	FailDeny
)

// RetryAfter is what a denial says in Retry-After: a number of seconds, at least 1, or
// one of the constants.
type RetryAfter int32

const (
	// RetryComputed is the wait that the bucket gives.
	RetryComputed RetryAfter = 0
	// RetryOff leaves the header out.
	RetryOff RetryAfter = -1
)

// maxRetryAfter is the longest wait that a file may name, as long as the longest period.
const maxRetryAfter = int64(MaxPeriod / 1e9)

// Body is the body of a denial.
type Body struct {
	// ContentType is printable ASCII without quotes, so that it can stand in a header.
	ContentType string
	// Text is the body's bytes, at most 65536.
	Text string
}
