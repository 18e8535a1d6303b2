package wire

import (
	"encoding/binary"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// The functions of this file append the parts of one
// envoy.service.ratelimit.v3.RateLimitResponse to a message, in the order in which they
// stand here: that of the field numbers, in which protobuf's own encoder writes them. They
// allocate only to grow the message.

// Codes of RateLimitResponse.Code.
const (
	codeOK        = 1
	codeOverLimit = 2
)

// Tags of the fields: number<<3 | wire type, all below 128.
const (
	tagOverallCode = 1<<3 | byte(protowire.VarintType)
	tagStatuses    = 2<<3 | byte(protowire.BytesType)
	tagHeaders     = 3<<3 | byte(protowire.BytesType)
	tagRawBody     = 5<<3 | byte(protowire.BytesType)
	tagMetadata    = 6<<3 | byte(protowire.BytesType)

	tagStatusCode      = 1<<3 | byte(protowire.VarintType)
	tagStatusRemaining = 3<<3 | byte(protowire.VarintType)
	tagStatusReset     = 4<<3 | byte(protowire.BytesType)

	tagLimit           = 2<<3 | byte(protowire.BytesType) // within a status
	tagLimitRequests   = 1<<3 | byte(protowire.VarintType)
	tagLimitUnit       = 2<<3 | byte(protowire.VarintType)
	tagLimitName       = 3<<3 | byte(protowire.BytesType)
	tagLimitMultiplier = 4<<3 | byte(protowire.BytesType)

	tagKey   = 1<<3 | byte(protowire.BytesType) // within a header
	tagValue = 2<<3 | byte(protowire.BytesType)

	tagSeconds = 1<<3 | byte(protowire.VarintType) // within a Duration
	tagWrapped = 1<<3 | byte(protowire.VarintType) // within a UInt32Value
)

// AppendOverallCode opens a message.
func AppendOverallCode(dst []byte, over bool) []byte {
	return append(dst, tagOverallCode, code(over))
}

func code(over bool) byte {
	if over {
		return codeOverLimit
	}
	return codeOK
}

// Status is one DescriptorStatus.
type Status struct {
	Over bool
	// Limit is the current_limit that AppendLimit made; empty if no limit applied, and
	// then there is no ResetSeconds either.
	Limit        []byte
	Remaining    uint32
	ResetSeconds int64
}

// AppendStatus appends the next of the statuses.
func AppendStatus(dst []byte, st *Status) []byte {
	dst = append(dst, tagStatuses, 0)
	start := len(dst)
	dst = append(dst, tagStatusCode, code(st.Over))
	dst = append(dst, st.Limit...)
	dst = appendNumber(dst, tagStatusRemaining, uint64(st.Remaining))
	if len(st.Limit) > 0 {
		dst = append(dst, tagStatusReset, 0)
		inner := len(dst)
		dst = appendNumber(dst, tagSeconds, uint64(st.ResetSeconds))
		dst = closeMessage(dst, inner)
	}
	return closeMessage(dst, start)
}

// AppendLimit appends a current_limit in the form in which a status holds it. unit has the
// numbers of RateLimitResponse.RateLimit.Unit; a multiplier of 0 or 1 is left out.
func AppendLimit(dst []byte, requests, unit, multiplier uint32, name string) []byte {
	dst = append(dst, tagLimit, 0)
	start := len(dst)
	dst = appendNumber(dst, tagLimitRequests, uint64(requests))
	dst = appendNumber(dst, tagLimitUnit, uint64(unit))
	dst = appendText(dst, tagLimitName, name)
	if multiplier > 1 {
		dst = append(dst, tagLimitMultiplier, 0)
		inner := len(dst)
		dst = appendNumber(dst, tagWrapped, uint64(multiplier))
		dst = closeMessage(dst, inner)
	}
	return closeMessage(dst, start)
}

// AppendHeader appends the next of response_headers_to_add.
func AppendHeader(dst []byte, name, value string) []byte {
	dst = append(dst, tagHeaders, 0)
	start := len(dst)
	dst = appendText(dst, tagKey, name)
	dst = appendText(dst, tagValue, value)
	return closeMessage(dst, start)
}

// AppendNumberHeader is AppendHeader for a number in decimal.
func AppendNumberHeader(dst []byte, name string, value uint64) []byte {
	var digits [20]byte
	text := strconv.AppendUint(digits[:0], value, 10)
	dst = append(dst, tagHeaders, 0)
	start := len(dst)
	dst = appendText(dst, tagKey, name)
	dst = append(dst, tagValue, byte(len(text)))
	return closeMessage(append(dst, text...), start)
}

// AppendRawBody appends the body of a refusal.
func AppendRawBody(dst []byte, body string) []byte { return appendText(dst, tagRawBody, body) }

// AppendMetadata appends the dynamic metadata: an encoded google.protobuf.Struct.
func AppendMetadata(dst, encoded []byte) []byte {
	return protowire.AppendBytes(append(dst, tagMetadata), encoded)
}

// appendNumber appends a scalar, which proto3 leaves out if it is zero.
func appendNumber(dst []byte, tag byte, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendUvarint(append(dst, tag), v)
}

// appendText appends a text, which proto3 leaves out if it is empty.
func appendText(dst []byte, tag byte, text string) []byte {
	if text == "" {
		return dst
	}
	return protowire.AppendString(append(dst, tag), text)
}

// closeMessage writes the length of the message that begins at start into the byte before
// it, and makes room for it where one byte is not enough.
func closeMessage(dst []byte, start int) []byte {
	n := len(dst) - start
	if n < 0x80 {
		dst[start-1] = byte(n)
		return dst
	}
	extra := protowire.SizeVarint(uint64(n)) - 1
	for range extra {
		dst = append(dst, 0)
	}
	copy(dst[start+extra:], dst[start:start+n])
	binary.PutUvarint(dst[start-1:], uint64(n))
	return dst
}
