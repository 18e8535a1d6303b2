package config

import (
	"errors"
	"slices"
	"strings"
)

// unfit are the headers that frame a message, belong to one hop or route it (RFC 9110
// §7.6.1, RFC 9113 §8.2.2), and those that an answer of ours or of Envoy sets already:
// a limit written there would break the answer that it describes.
var unfit = []string{
	"connection", "content-encoding", "content-length", "content-type", "date", "host",
	"http2-settings", "keep-alive", "proxy-authenticate", "proxy-authorization",
	"proxy-connection", "retry-after", "server", "set-cookie", "te", "trailer",
	"transfer-encoding", "upgrade",
}

// header takes a header's name.
func header(dst *string) value {
	const kind = "a header name (letters, digits and !#$%&'*+-.^_`|~)"
	return value{kind: "a header name", set: func(text string) error {
		text = strings.TrimSpace(text)
		if text == "" || strings.ContainsFunc(text, notToken) {
			return not(kind)
		}
		if slices.Contains(unfit, strings.ToLower(text)) {
			return errors.New("is a header with a meaning of its own in HTTP; choose another name")
		}
		*dst = text
		return nil
	}}
}

// notToken reports whether r may not stand in a header's name (RFC 9110 §5.6.2).
func notToken(r rune) bool {
	switch {
	case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		return false
	}
	return !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
