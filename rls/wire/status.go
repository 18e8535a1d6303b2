package wire

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Codes of gRPC that the engine itself answers with
// (github.com/grpc/grpc, doc/statuscodes.md).
const (
	codeUnknown           = 2
	codeDeadlineExceeded  = 4
	codeResourceExhausted = 8
	codeUnimplemented     = 12
	codeInternal          = 13
)

// Error is a gRPC status other than OK. A Handler answers with it;
// context.DeadlineExceeded is a DEADLINE_EXCEEDED, and any other error an UNKNOWN.
type Error struct {
	Code    uint32
	Message string
}

// Error is part of error.
func (e *Error) Error() string { return "code " + strconv.Itoa(int(e.Code)) + ": " + e.Message }

func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{codeDeadlineExceeded, err.Error()}
	}
	return &Error{codeUnknown, err.Error()}
}

// appendPercent appends a grpc-message in the encoding of the gRPC protocol: every byte
// but printable ASCII, and the percent sign, is %XX.
func appendPercent(dst []byte, text string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(text) {
		if b := text[i]; b < ' ' || b > '~' || b == '%' {
			dst = append(dst, '%', hex[b>>4], hex[b&15])
		} else {
			dst = append(dst, b)
		}
	}
	return dst
}

// timeoutUnits are those of grpc-timeout.
var timeoutUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// parseTimeout reads a grpc-timeout: at most eight digits and a unit.
func parseTimeout(text string) (time.Duration, bool) {
	if len(text) < 2 || len(text) > 9 {
		return 0, false
	}
	unit, ok := timeoutUnits[text[len(text)-1]]
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if err != nil {
		return 0, false
	}
	const longest = 1 << 62
	if n > uint64(longest/unit) {
		return longest, true
	}
	return time.Duration(n) * unit, true
}

// isGRPC reports whether a content-type is gRPC's: application/grpc, alone or with a
// suffix.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}
