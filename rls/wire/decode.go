package wire

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// Bounds of one request. The message itself is bounded by the transport (4 MiB); these
// keep a message of many empty parts from growing into a hundred times its size.
const (
	MaxDescriptors = 1024
	MaxEntries     = 16384
)

// ErrTooLarge is wrapped by the error of a request over one of the bounds.
var ErrTooLarge = errors.New("request too large")

// errMalformed is what a truncated or otherwise impossible message is.
var errMalformed = errors.New("malformed protobuf message")

// Decode reads one RateLimitRequest into req, whose earlier content is dropped; its
// slices are used again. The strings of req share data's memory, so data must not
// change while req is in use.
//
// It accepts what protobuf's own decoder accepts, with the same outcome (the last of a
// repeated scalar wins, repeated messages are merged, a known field of another wire
// type is skipped like an unknown one), and in addition strings that are not UTF-8.
func Decode(data []byte, req *Request) error {
	*req = Request{Descriptors: req.Descriptors[:0]}
	entries := 0
	return eachField(data, func(num protowire.Number, typ protowire.Type, b []byte) (int, error) {
		switch {
		case num == 1 && typ == protowire.BytesType: // domain
			return takeString(b, &req.Domain)
		case num == 2 && typ == protowire.BytesType: // descriptors
			if len(req.Descriptors) == MaxDescriptors {
				return 0, fmt.Errorf("%w: more than %d descriptors", ErrTooLarge, MaxDescriptors)
			}
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return 0, errMalformed
			}
			d := req.nextDescriptor()
			if err := decodeDescriptor(v, d); err != nil {
				return 0, err
			}
			if entries += len(d.Entries); entries > MaxEntries {
				return 0, fmt.Errorf("%w: more than %d entries", ErrTooLarge, MaxEntries)
			}
			return n, nil
		case num == 3 && typ == protowire.VarintType: // hits_addend
			v, n := protowire.ConsumeVarint(b)
			req.HitsAddend = uint32(v)
			return n, nil
		}
		return skip, nil
	})
}

// nextDescriptor appends an empty descriptor, using again the entries of an earlier
// request where there are some.
func (r *Request) nextDescriptor() *Descriptor {
	n := len(r.Descriptors)
	if n < cap(r.Descriptors) {
		r.Descriptors = r.Descriptors[:n+1]
		d := &r.Descriptors[n]
		*d = Descriptor{Entries: d.Entries[:0]}
		return d
	}
	r.Descriptors = append(r.Descriptors, Descriptor{})
	return &r.Descriptors[n]
}

func decodeDescriptor(data []byte, d *Descriptor) error {
	return eachField(data, func(num protowire.Number, typ protowire.Type, b []byte) (int, error) {
		switch {
		case num == 1 && typ == protowire.BytesType: // entries
			if len(d.Entries) == MaxEntries {
				return 0, fmt.Errorf("%w: more than %d entries", ErrTooLarge, MaxEntries)
			}
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return 0, errMalformed
			}
			d.Entries = append(d.Entries, Entry{})
			return n, decodeEntry(v, &d.Entries[len(d.Entries)-1])
		case num == 2 && typ == protowire.BytesType: // limit
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return 0, errMalformed
			}
			if d.Override == nil {
				d.Override = &Override{}
			}
			return n, decodeOverride(v, d.Override)
		case num == 3 && typ == protowire.BytesType: // hits_addend, a UInt64Value
			d.HasHits = true
			return takeWrapped(b, &d.Hits)
		case num == 4 && typ == protowire.VarintType: // is_negative_hits
			v, n := protowire.ConsumeVarint(b)
			d.Negative = v != 0
			return n, nil
		}
		return skip, nil
	})
}

func decodeEntry(data []byte, e *Entry) error {
	return eachField(data, func(num protowire.Number, typ protowire.Type, b []byte) (int, error) {
		switch {
		case num == 1 && typ == protowire.BytesType:
			return takeString(b, &e.Key)
		case num == 2 && typ == protowire.BytesType:
			return takeString(b, &e.Value)
		}
		return skip, nil
	})
}

func decodeOverride(data []byte, o *Override) error {
	return eachField(data, func(num protowire.Number, typ protowire.Type, b []byte) (int, error) {
		switch {
		case num == 1 && typ == protowire.VarintType: // requests_per_unit
			v, n := protowire.ConsumeVarint(b)
			o.RequestsPerUnit = uint32(v)
			return n, nil
		case num == 2 && typ == protowire.VarintType: // unit
			v, n := protowire.ConsumeVarint(b)
			o.Unit = int32(v)
			return n, nil
		case num == 3 && typ == protowire.BytesType: // unit_multiplier, a UInt32Value
			wide := uint64(o.UnitMultiplier)
			n, err := takeWrapped(b, &wide)
			o.UnitMultiplier = uint32(wide)
			return n, err
		}
		return skip, nil
	})
}

// skip is what a field's reader answers for a field that it does not know.
const skip = math.MinInt

// eachField calls read with each field of a message and the bytes after its tag. read
// answers how many bytes the value took: a negative number of protowire's other than
// skip is an error.
func eachField(data []byte, read func(num protowire.Number, typ protowire.Type, b []byte) (int, error)) error {
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 || num > protowire.MaxValidNumber {
			return errMalformed
		}
		data = data[n:]
		n, err := read(num, typ, data)
		if err != nil {
			return err
		}
		if n == skip {
			n = protowire.ConsumeFieldValue(num, typ, data)
		}
		if n < 0 || n > len(data) {
			return errMalformed
		}
		data = data[n:]
	}
	return nil
}

// takeString reads a string field without copying it.
func takeString(b []byte, dst *string) (int, error) {
	v, n := protowire.ConsumeBytes(b)
	if n < 0 {
		return 0, errMalformed
	}
	*dst = unsafe.String(unsafe.SliceData(v), len(v)) // Decode's caller leaves the bytes alone
	return n, nil
}

// takeWrapped reads a google.protobuf.UInt32Value or UInt64Value, merging it into dst.
func takeWrapped(b []byte, dst *uint64) (int, error) {
	v, n := protowire.ConsumeBytes(b)
	if n < 0 {
		return 0, errMalformed
	}
	return n, eachField(v, func(num protowire.Number, typ protowire.Type, b []byte) (int, error) {
		if num != 1 || typ != protowire.VarintType {
			return skip, nil
		}
		w, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return 0, errMalformed
		}
		*dst = w
		return n, nil
	})
}
