package wire

import (
	"encoding/binary"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const frameHeaderLen = 9

// appendFrame appends the head of a frame (RFC 9113 section 4.1).
func appendFrame(dst []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	return append(dst, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func appendReset(dst []byte, stream uint32, code http2.ErrCode) []byte {
	dst = appendFrame(dst, 4, http2.FrameRSTStream, 0, stream)
	return binary.BigEndian.AppendUint32(dst, uint32(code))
}

func appendWindowUpdate(dst []byte, stream, n uint32) []byte {
	dst = appendFrame(dst, 4, http2.FrameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(dst, n)
}

func appendPing(dst []byte, flags http2.Flags, data [8]byte) []byte {
	return append(appendFrame(dst, len(data), http2.FramePing, flags, 0), data[:]...)
}

func appendGoAway(dst []byte, last uint32, code http2.ErrCode, debug string) []byte {
	dst = appendFrame(dst, 8+len(debug), http2.FrameGoAway, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, last)
	dst = binary.BigEndian.AppendUint32(dst, uint32(code))
	return append(dst, debug...)
}

func appendSettings(dst []byte, settings ...http2.Setting) []byte {
	dst = appendFrame(dst, 6*len(settings), http2.FrameSettings, 0, 0)
	for _, s := range settings {
		dst = binary.BigEndian.AppendUint16(dst, uint16(s.ID))
		dst = binary.BigEndian.AppendUint32(dst, s.Val)
	}
	return dst
}

// openHeaders begins a HEADERS frame whose block follows; closeFrame ends it.
func openHeaders(dst []byte, stream uint32, end bool) []byte {
	flags := http2.FlagHeadersEndHeaders
	if end {
		flags |= http2.FlagHeadersEndStream
	}
	return appendFrame(dst, 0, http2.FrameHeaders, flags, stream)
}

// closeFrame writes the length of the frame whose head begins at start. A block longer
// than a frame goes on in CONTINUATION frames (RFC 9113 section 6.10).
func closeFrame(dst []byte, start int) []byte {
	n := len(dst) - start - frameHeaderLen
	if n <= maxFrame {
		putLength(dst[start:], n)
		return dst
	}
	rest := append([]byte(nil), dst[start+frameHeaderLen+maxFrame:]...)
	dst = dst[:start+frameHeaderLen+maxFrame]
	putLength(dst[start:], maxFrame)
	dst[start+4] &^= byte(http2.FlagHeadersEndHeaders)
	stream := binary.BigEndian.Uint32(dst[start+5:])
	for len(rest) > 0 {
		part := rest[:min(len(rest), maxFrame)]
		rest = rest[len(part):]
		var flags http2.Flags
		if len(rest) == 0 {
			flags = http2.FlagContinuationEndHeaders
		}
		dst = appendFrame(dst, len(part), http2.FrameContinuation, flags, stream)
		dst = append(dst, part...)
	}
	return dst
}

func putLength(head []byte, n int) { head[0], head[1], head[2] = byte(n>>16), byte(n>>8), byte(n) }

// Header blocks never touch the dynamic table of the peer's decoder: that spares all state
// of an encoder, for some thirty bytes a call.

// appendField appends a literal field without indexing (RFC 7541 section 6.2.2).
func appendField(dst []byte, name, value string) []byte {
	return appendString(appendString(append(dst, 0), name), value)
}

// appendString appends a string without Huffman code (RFC 7541 section 5.2).
func appendString(dst []byte, text string) []byte {
	return append(appendLength(dst, 0, uint64(len(text))), text...)
}

// appendHuffman is appendString in Huffman code.
func appendHuffman(dst []byte, text string) []byte {
	return hpack.AppendHuffmanString(appendLength(dst, 0x80, hpack.HuffmanEncodeLength(text)), text)
}

// appendLength appends an integer with a prefix of seven bits (RFC 7541 section 5.1).
func appendLength(dst []byte, high byte, n uint64) []byte {
	const prefix = 0x7f
	if n < prefix {
		return append(dst, high|byte(n))
	}
	return binary.AppendUvarint(append(dst, high|prefix), n-prefix)
}

// The parts of the blocks that nearly every answer consists of.
var (
	// grpcHead is :status 200 (entry 8 of the static table) and a content-type, whose name
	// is entry 31.
	grpcHead = appendHuffman([]byte{0x88, 0x0f, 31 - 0x0f}, "application/grpc")
	// grpcOK is grpc-status 0.
	grpcOK = appendString(appendHuffman([]byte{0}, "grpc-status"), "0")
)

// noTable tells the peer's decoder that its dynamic table is not used (RFC 7541 section
// 4.2: the first block after it has made its table smaller has to).
const noTable = 0x20

// maxText is how much of a status' message is sent, in bytes.
const maxText = 1024

// appendStatusFields appends a gRPC status to a header block.
func appendStatusFields(dst []byte, e *Error) []byte {
	dst = appendField(dst, "grpc-status", strconv.Itoa(int(e.Code)))
	if e.Message == "" {
		return dst
	}
	text := e.Message[:min(len(e.Message), maxText)]
	return appendField(dst, "grpc-message", string(appendPercent(nil, text)))
}
