package descriptors

import (
	"encoding/hex"
	"unicode"
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

// AppendEntries appends a request's entries in the form of a rule's path, for a log:
// printable, values cut after 128 bytes, and those that are kept out of bucket keys shown
// by their hash.
func (d *Domain) AppendEntries(dst []byte, entries []Entry) []byte {
	next := &d.root
	for i := range entries {
		e := &entries[i]
		sensitive := d.keyer.hashAll
		if next != nil {
			n := next.find(e)
			next = nil
			if n != nil {
				sensitive, next = sensitive || n.level.sensitive, &n.next
			}
		}
		if i > 0 {
			dst = append(dst, " > "...)
		}
		dst = append(appendLabelText(dst, e.Key), '=')
		if sensitive {
			dst = d.keyer.appendHash(dst, e.Value)
		} else {
			dst = appendLabelText(dst, e.Value)
		}
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

// appendLabelText appends the beginning of a request's text, printable.
func appendLabelText(dst []byte, text string) []byte {
	if len(text) <= maxLabelValue {
		return AppendPrintable(dst, text)
	}
	return append(AppendPrintable(dst, text[:maxLabelValue]), "…"...)
}

// AppendPrintable appends a request's text as valid UTF-8 that neither a terminal nor a
// log takes for anything but text: what is no printable character, and what is no UTF-8,
// is shown as \x and two hex digits for each byte, a backslash as two. Different texts
// stay different.
func AppendPrintable(dst []byte, text string) []byte {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '\\':
			dst = append(dst, '\\', '\\')
		case r == utf8.RuneError && size == 1, !unicode.IsPrint(r):
			for _, b := range []byte(text[i : i+size]) {
				dst = append(dst, '\\', 'x')
				dst = hex.AppendEncode(dst, []byte{b})
			}
		default:
			dst = append(dst, text[i:i+size]...)
		}
		i += size
	}
	return dst
}
