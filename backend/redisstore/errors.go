package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// The kinds of an Error, for metrics and for what is done about it.
const (
	KindTimeout  = "timeout"  // no answer in time
	KindCanceled = "canceled" // the caller left
	KindPool     = "pool"     // no free connection in time
	KindNetwork  = "network"  // no connection, or a broken one
	KindTLS      = "tls"      // a certificate that is not trusted
	KindAuth     = "auth"     // NOAUTH, WRONGPASS, NOPERM
	KindNoScript = "noscript" // the script is not there, though it was just sent
	KindReadOnly = "readonly" // a replica, after a failover that the client has not seen
	KindMemory   = "oom"      // maxmemory is reached
	KindCluster  = "cluster"  // MOVED and ASK without end, CLUSTERDOWN, TRYAGAIN
	KindLoading  = "loading"  // Redis starts, or is busy with a script
	KindClosed   = "closed"   // Close was called
	KindScripts  = "scripts"  // the server runs no scripts, as some proxies before Redis
	KindOther    = "other"
)

// Error is an error of Redis or on the way to it. Its text holds no address, key, user
// name or password; errors.Is and errors.As see the cause.
type Error struct {
	doing, kind, detail string
	cause               error
}

// Error says what was being done and what kind of error came of it.
func (e *Error) Error() string {
	text := e.doing + ": " + e.kind
	if e.detail != "" {
		text += ": " + e.detail
	}
	return text
}

// Kind is one of the Kind constants.
func (e *Error) Kind() string { return e.kind }

// Unwrap returns the cause, whose text may hold addresses.
func (e *Error) Unwrap() error { return e.cause }

// wrap makes an Error of what go-redis returned.
func wrap(doing string, cause error) *Error {
	kind, detail := classify(cause)
	return &Error{doing: doing, kind: kind, detail: detail, cause: cause}
}

// classify returns the kind of an error and what may be shown of its text.
func classify(err error) (kind, detail string) {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return classifyReply(reply.Error())
	}
	switch {
	case errors.Is(err, context.Canceled):
		return KindCanceled, ""
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return KindPool, "no free connection"
	case errors.Is(err, redis.ErrClosed):
		return KindClosed, ""
	case isTimeout(err):
		return KindTimeout, "no answer in time"
	}
	if detail := certificate(err); detail != "" {
		return KindTLS, detail
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return KindNetwork, dns.Err
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return KindNetwork, number.Error()
	}
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return KindNetwork, "the connection broke"
	}
	return KindOther, ""
}

func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// certificate says why a certificate was refused, without the names in it.
func certificate(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate's authority is not known"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate is for another name"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate is not valid"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the server does not speak TLS"
	}
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return alert.Error()
	}
	return ""
}

// replyKinds are the kinds of error replies by their first word.
var replyKinds = map[string]string{
	"NOSCRIPT": KindNoScript,
	"READONLY": KindReadOnly,
	"OOM":      KindMemory,
	"NOAUTH":   KindAuth, "WRONGPASS": KindAuth, "NOPERM": KindAuth,
	"MOVED": KindCluster, "ASK": KindCluster, "CLUSTERDOWN": KindCluster, "TRYAGAIN": KindCluster, "CROSSSLOT": KindCluster,
	"LOADING": KindLoading, "BUSY": KindLoading, "MASTERDOWN": KindLoading, "NOREPLICAS": KindLoading,
}

// classifyReply is classify for an error that Redis answered. Only its code is shown: the
// rest may name keys, users and addresses.
func classifyReply(text string) (kind, detail string) {
	code, _, _ := strings.Cut(text, " ")
	if kind, ok := replyKinds[code]; ok {
		return kind, code
	}
	switch {
	// Redis before version 7 puts the error of a script's command behind its own.
	case strings.Contains(text, "-OOM "):
		return KindMemory, "OOM"
	case strings.Contains(text, "-READONLY "):
		return KindReadOnly, "READONLY"
	case strings.Contains(text, "unknown command"):
		return KindScripts, "the server does not know EVALSHA, which every bucket needs"
	case strings.Contains(text, "max number of clients"):
		return KindPool, "the server takes no more clients"
	}
	return KindOther, code
}
