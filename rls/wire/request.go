package wire

// Request is one envoy.service.ratelimit.v3.RateLimitRequest. Its strings are opaque
// bytes and need not be UTF-8.
type Request struct {
	Domain      string
	Descriptors []Descriptor
	// HitsAddend is the request's own count; 0 and absent both mean 1.
	HitsAddend uint32
}

// Descriptor is one envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.
type Descriptor struct {
	Entries []Entry
	// Override is the limit that the request brings along, nil if none.
	Override *Override
	// Hits is the descriptor's own count, which replaces the request's if HasHits; a
	// present 0 is a look.
	Hits    uint64
	HasHits bool
	// Negative turns the hits into a refund.
	Negative bool
}

// Entry is one key and value of a descriptor.
type Entry struct{ Key, Value string }

// Override is a limit in the request.
type Override struct {
	RequestsPerUnit uint32
	// Unit has the numbers of envoy.type.v3.RateLimitUnit; 0 is unknown.
	Unit int32
	// UnitMultiplier is 0 if absent, which means 1, as Envoy reads a 0.
	UnitMultiplier uint32
}
