package descriptors

import (
	"encoding/hex"
	"unicode/utf8"
)

// maxLabelValue is how much of a request's value a label shows, in bytes.
const maxLabelValue = 128

// AppendLabel appends the rule's path with the request's values at the levels that
// detailed_metric or value_to_metric ask for, as in "api_key=shop-a > route", and returns
// it. It is Path where PerValueMetric is false. The text is valid UTF-8 whatever the
// entries hold; a value is cut after 128 bytes, and one marked sensitive is shown by its
// hash. The entries are those by which Match found the rule.
func (r *Rule) AppendLabel(dst []byte, entries []Entry) []byte {
	for i, l := range r.levels {
		if i > 0 {
			dst = append(dst, " > "...)
		}
		dst = r.appendNode(dst, l, &entries[i], '=')
	}
	return dst
}

// AppendStatName appends the name that the reference service gives to the rule's
// statistics, as in "edge.api_key_shop-a.route", and returns it. The rest is as for
// AppendLabel.
func (r *Rule) AppendStatName(dst []byte, entries []Entry) []byte {
	dst = append(dst, r.Domain...)
	for i, l := range r.levels {
		dst = append(dst, '.')
		dst = r.appendNode(dst, l, &entries[i], '_')
	}
	return dst
}

func (r *Rule) appendNode(dst []byte, l *level, e *Entry, equals byte) []byte {
	if l.shared || !r.DetailedMetric && !l.inMetric {
		dst = append(dst, l.key...)
		if l.value == "" {
			return dst
		}
		dst = append(dst, equals)
		return append(dst, l.value...)
	}
	dst = appendLabelText(dst, e.Key)
	dst = append(dst, equals)
	if l.sensitive {
		return r.domain.keyer.appendHash(dst, e.Value)
	}
	return appendLabelText(dst, e.Value)
}

// appendLabelText appends a request's text as valid UTF-8: bytes that are none are shown
// as \x and two hex digits, so that different values stay different.
func appendLabelText(dst []byte, text string) []byte {
	cut := len(text) > maxLabelValue
	if cut {
		text = text[:maxLabelValue]
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, '\\', 'x')
			dst = hex.AppendEncode(dst, []byte{text[i]})
		} else {
			dst = append(dst, text[i:i+size]...)
		}
		i += size
	}
	if cut {
		dst = append(dst, "…"...)
	}
	return dst
}
