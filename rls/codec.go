package rls

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // callers may compress their messages
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// message is the bytes of one ShouldRateLimit request as they came, or of its answer.
type message struct{ data []byte }

// codec is gRPC's own for protobuf, but for the messages of the one method: those stay
// bytes. Protobuf's decoder refuses a string that is not UTF-8, and Envoy, when refused,
// lets the request through unlimited; the answer has been encoded by the Service.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

// Marshal is part of encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*message); ok {
		return mem.BufferSlice{mem.SliceBuffer(m.data)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal is part of encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*message); ok {
		m.data = data.Materialize() // a copy: gRPC uses its buffers again
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
