package descriptors

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"
	"sync"

	"github.com/sluice-rls/sluice/backend"
)

// A bucket key is
//
//	{ domain key value } : node ( node key value )* algorithm
//
// The part in braces is the hash tag of a Redis Cluster: all buckets of one domain and
// one first entry lie in one slot, so that a call on one tenant is one script. After it
// comes a node for each level, followed, but for the first, by the request's key and
// value at that level; last, one letter for the algorithm.
//
// A text is its length in decimal, a colon and its bytes, so no bytes of a client can end
// it early; in the tag {, } and % are percent-escaped (the length is that of the text
// itself), so none can end the tag. A value that is not to be read is an h and the hex of
// its HMAC instead. A node is e for a value that the rule names, d for a key without
// value, w with the rule's key and value for a wildcard, and s with both for a wildcard
// whose values share a bucket, which then also stand in place of the request's.
//
// If all that comes after the tag is longer than 2048 bytes, an h and the hex of its HMAC
// stand in its place.
//
// The numbers of a limit are no part of the key, so that a changed limit keeps its
// bucket. An override in a request is its own rule: its key has o, all entries, and the
// numbers of its limit.
const (
	markExact    = 'e'
	markDefault  = 'd'
	markWildcard = 'w'
	markShared   = 's'
	markOverride = 'o'
	markHashed   = 'h'
)

// maxPlain is the longest text of a request that goes into a key as it is, in bytes.
const maxPlain = 128

// maxRest is the longest part after the tag that a key has as it is, in bytes.
const maxRest = 2048

// hashedBytes is how much of an HMAC-SHA-256 stands for a value.
const hashedBytes = 16

// algorithmMark names an algorithm at the end of a key. The letters are stored in keys and
// must stay as they are.
func algorithmMark(a backend.Algorithm) byte {
	const marks = "TLFSG"
	return marks[a]
}

// AppendKey appends to dst the key of the bucket that the entries draw on, without a
// store's prefix, and returns it. The entries are those by which Match found the rule. It
// allocates only to grow dst, and for values that are hashed.
func (r *Rule) AppendKey(dst []byte, entries []Entry) []byte {
	d := r.domain
	dst = d.appendTag(dst, r.levels[0], &entries[0])
	rest := len(dst)
	dst = append(dst, r.levels[0].marker...)
	for i, l := range r.levels[1:] {
		dst = append(dst, l.marker...)
		if !l.shared {
			e := &entries[i+1]
			dst = d.keyer.appendName(dst, e.Key)
			dst = d.keyer.appendValue(dst, e.Value, l.sensitive)
		}
	}
	return d.keyer.bound(append(dst, algorithmMark(r.Limit.Algorithm)), rest)
}

// AppendOverrideKey appends to dst the key of the bucket of a limit that came with the
// request, and returns it. Each set of entries, requests, unit, multiplier (0 counts as 1)
// and algorithm has its own. Its hash tag is that of the rules which the first entry reaches.
func (d *Domain) AppendOverrideKey(dst []byte, entries []Entry, requests uint32, unit Unit, multiplier uint32, a backend.Algorithm) []byte {
	next := &d.root
	if len(entries) == 0 {
		dst = append(append(dst, d.prefix...), '}', ':', markOverride)
	}
	rest := len(dst) - 1
	for i := range entries {
		e := &entries[i]
		// The nodes that the entries reach say which values are sensitive.
		var l *level
		if next != nil {
			n := next.find(e)
			next = nil
			if n != nil {
				l, next = &n.level, &n.next
			}
		}
		if i == 0 {
			dst = append(d.appendTag(dst, l, e), markOverride)
			rest = len(dst) - 1
		}
		dst = d.keyer.appendName(dst, e.Key)
		dst = d.keyer.appendValue(dst, e.Value, l != nil && l.sensitive)
	}
	dst = strconv.AppendUint(append(dst, 'n'), uint64(requests), 10)
	dst = strconv.AppendUint(append(dst, 'u'), uint64(unit), 10)
	dst = strconv.AppendUint(append(dst, 'm'), uint64(max(multiplier, 1)), 10)
	return d.keyer.bound(append(dst, algorithmMark(a)), rest)
}

// bound puts a hash in place of a key's part after the tag, from rest on, if it is long:
// a descriptor can have as many entries as a message holds.
func (k *keyer) bound(dst []byte, rest int) []byte {
	if len(dst)-rest <= maxRest {
		return dst
	}
	long := string(dst[rest:])
	return k.appendHash(dst[:rest], long)
}

// domainPrefix opens the keys of a domain.
func domainPrefix(name string) string { return string(appendEscapedText([]byte{'{'}, name)) }

// appendTag appends the hash tag and the colon after it. The level is that of the node
// which the entry reaches, nil for none.
func (d *Domain) appendTag(dst []byte, l *level, e *Entry) []byte {
	dst = append(dst, d.prefix...)
	switch {
	case l != nil && l.shared:
		dst = append(dst, l.tag...)
		return append(dst, '}', ':')
	case l != nil && l.tag != "":
		dst = append(dst, l.tag...)
	case len(e.Key) > maxPlain:
		dst = d.keyer.appendHash(dst, e.Key)
	default:
		dst = appendEscapedText(dst, e.Key)
	}
	if d.keyer.hides(e.Value, l != nil && l.sensitive) {
		dst = d.keyer.appendHash(dst, e.Value)
	} else {
		dst = appendEscapedText(dst, e.Value)
	}
	return append(dst, '}', ':')
}

// appendText appends a text behind its length.
func appendText(dst []byte, text string) []byte {
	dst = strconv.AppendUint(dst, uint64(len(text)), 10)
	dst = append(dst, ':')
	return append(dst, text...)
}

// appendEscapedText appends a text behind its length, without braces of its own.
func appendEscapedText(dst []byte, text string) []byte {
	dst = strconv.AppendUint(dst, uint64(len(text)), 10)
	dst = append(dst, ':')
	plain := 0
	for i := range len(text) {
		var escaped string
		switch text[i] {
		case '{':
			escaped = "%7B"
		case '}':
			escaped = "%7D"
		case '%':
			escaped = "%25"
		default:
			continue
		}
		dst = append(dst, text[plain:i]...)
		dst = append(dst, escaped...)
		plain = i + 1
	}
	return append(dst, text[plain:]...)
}

// keyer hashes values. The secret is the same on all instances, so that all name a bucket
// alike.
type keyer struct {
	hashAll bool
	// macs holds idle *mac of the secret.
	macs sync.Pool
}

type mac struct {
	hash.Hash
	buf []byte
}

func newKeyer(hashAll bool, secret []byte) *keyer {
	k := &keyer{hashAll: hashAll}
	k.macs.New = func() any { return &mac{Hash: hmac.New(sha256.New, secret)} }
	return k
}

func (k *keyer) hides(value string, sensitive bool) bool {
	return sensitive || k.hashAll || len(value) > maxPlain
}

// appendName appends a key of a request's entry.
func (k *keyer) appendName(dst []byte, name string) []byte {
	if len(name) > maxPlain {
		return k.appendHash(dst, name)
	}
	return appendText(dst, name)
}

// appendValue appends a value of a request's entry.
func (k *keyer) appendValue(dst []byte, value string, sensitive bool) []byte {
	if k.hides(value, sensitive) {
		return k.appendHash(dst, value)
	}
	return appendText(dst, value)
}

// appendHash appends the mark and the hash of a text.
func (k *keyer) appendHash(dst []byte, text string) []byte {
	m, _ := k.macs.Get().(*mac)
	m.Reset()
	m.buf = append(m.buf[:0], text...)
	_, _ = m.Write(m.buf) // a hash's Write never fails
	m.buf = m.Sum(m.buf[:0])
	dst = hex.AppendEncode(append(dst, markHashed), m.buf[:hashedBytes])
	k.macs.Put(m)
	return dst
}
