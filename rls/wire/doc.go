// Package wire is what a call looks like on the wire: the codec of the two messages of the
// rate limit service, and the lean engine, an HTTP/2 server for that one method. It knows
// neither rules nor buckets: it is given a Handler.
//
// The codec (decode.go, encode.go) takes every byte sequence in a string field: Envoy
// sends header bytes as they came, and protobuf's own decoder refuses what is not UTF-8.
//
// The engine answers a call in the goroutine that reads its connection, without
// allocating, and writes once for all the frames that came together. A call that has to
// wait goes on in another goroutine, and is written when it can be. Every other request
// (health, reflection, what is unknown) is handed to an http.Handler, which grpc.Server
// is. The way of a frame through the files: inbound.go has the bytes, conn.go tells frames
// apart, header.go and unary.go make a call of them (work.go if it has to wait, bridge.go
// if it is another's), and outbound.go has what is to be written. flow.go is flow control,
// drain.go the end of a connection, guard.go and the constants of server.go what a peer may
// cost. Framing and HPACK are those of golang.org/x/net/http2, but for the three frames
// that calls are made of, which are read in place.
//
// RFC 9113 is HTTP/2, RFC 7541 its header compression; gRPC over it is described in
// doc/PROTOCOL-HTTP2.md of github.com/grpc/grpc.
//
// A Server is safe for concurrent use. A connection has one lock, which is never held
// while anything is written or a handler runs.
package wire
