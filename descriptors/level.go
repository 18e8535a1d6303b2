package descriptors

import "strings"

// level is what one node of a rule's path contributes to the rule's bucket keys and
// metric names.
type level struct {
	// key and value are as written.
	key, value string
	// marker is the node's own part in a bucket key, see key.go.
	marker string
	// tag is the part of the hash tag that does not depend on the request: the key, or
	// all of it where values share a bucket. Empty where the key has a star.
	tag string
	// varies says that requests of different values (or keys) reach the node.
	varies bool
	// shared says that all of them pay from one bucket.
	shared bool
	// sensitive says that the value must not be readable in keys and names.
	sensitive bool
	// inMetric says that metric names show the request's value.
	inMetric bool
}

func newLevel(d *descriptor) level {
	starred := strings.Contains(d.key, star) || strings.Contains(d.value, star)
	l := level{
		key: d.key, value: d.value,
		varies: starred || d.value == "",
		shared: d.share, sensitive: d.sensitive, inMetric: d.valueToMetric,
	}
	switch {
	case l.shared:
		l.tag = string(appendEscapedText(appendEscapedText([]byte{markShared}, d.key), d.value))
		l.marker = string(appendText(appendText([]byte{markShared}, d.key), d.value))
	case starred:
		l.marker = string(appendText(appendText([]byte{markWildcard}, d.key), d.value))
	case d.value == "":
		l.marker = string(markDefault)
	default:
		l.marker = string(markExact)
	}
	if !l.shared && !strings.Contains(d.key, star) {
		l.tag = string(appendEscapedText(nil, d.key))
	}
	return l
}
