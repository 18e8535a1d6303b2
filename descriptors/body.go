package descriptors

import (
	"encoding/json"
	"errors"
	"strings"

	"gopkg.in/yaml.v3"
)

const (
	// maxBody bounds the body of a denial, in bytes.
	maxBody = 1 << 16

	contentText = "text/plain; charset=utf-8"
	contentJSON = "application/json"
)

// body is what a body map says.
type body struct {
	contentType string
	text        given[string]
	json        given[string]
}

// readBody reads the body of a denial: a text, or a map of content_type and one of text
// and json.
func readBody(p *parser, s *scope, l *limit, at *pair) {
	if at.value.Kind != yaml.MappingNode {
		if value, ok := p.scalar(at.value, s, "text or a map"); ok {
			l.body = p.bound(at.value, s, &Body{ContentType: contentOf(value), Text: value})
		}
		return
	}
	var b body
	readPairs(p, s, p.language.body, &b, p.pairs(at.value, s, false))
	made := &Body{ContentType: b.contentType}
	switch {
	case b.text.set() && b.json.set():
		p.failAt(b.json.at, s.field("json"), "given beside text; write one of the two")
		return
	case b.text.set():
		made.Text = b.text.value
	case b.json.set():
		made.Text = b.json.value
	default:
		p.fail(at.key, s, "neither text nor json given; write one of the two")
		return
	}
	if made.ContentType == "" {
		made.ContentType = contentOf(made.Text)
		if b.json.set() {
			made.ContentType = contentJSON
		}
	}
	l.body = p.bound(at.value, s, made)
}

// contentOf tells JSON objects and arrays from text.
func contentOf(text string) string {
	start := strings.TrimLeft(text, " \t\r\n")
	if (strings.HasPrefix(start, "{") || strings.HasPrefix(start, "[")) && json.Valid([]byte(text)) {
		return contentJSON
	}
	return contentText
}

// bound returns the body if it can be sent, else nil.
func (p *parser) bound(n *yaml.Node, s *scope, b *Body) *Body {
	if len(b.Text) > maxBody {
		p.fail(n, s, "%d bytes are above %d; write a shorter body", len(b.Text), maxBody)
		return nil
	}
	if strings.ContainsFunc(b.ContentType, func(r rune) bool { return r < ' ' || r > '~' || unsafeInHeader(r) }) {
		p.fail(n, s.field("content_type"), "%s goes into a header; write printable ASCII without quotes and backslashes", shown(b.ContentType))
		return nil
	}
	return b
}

func readBodyText(p *parser, s *scope, b *body, at *pair) {
	if value, ok := p.scalar(at.value, s, "text"); ok {
		b.text = given[string]{value, spotOf(at.value)}
	}
}

// readBodyJSON takes any YAML and writes it as JSON; a text is taken to be JSON already
// if it is an object or an array.
func readBodyJSON(p *parser, s *scope, b *body, at *pair) {
	if at.value.Kind == yaml.ScalarNode && at.value.ShortTag() == strTag && contentOf(at.value.Value) == contentJSON {
		b.json = given[string]{at.value.Value, spotOf(at.value)}
		return
	}
	value, ok := p.value(at.value, s)
	if !ok {
		return
	}
	var out shortWriter
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); errors.Is(err, errLong) {
		p.fail(at.value, s, "as JSON it is above %d bytes; write a shorter body", maxBody)
		return
	} else if err != nil {
		p.fail(at.value, s, "writing JSON: %v", err)
		return
	}
	b.json = given[string]{strings.TrimSuffix(out.String(), "\n"), spotOf(at.value)}
}

// shortWriter takes what a body can hold, and no more.
type shortWriter struct{ strings.Builder }

var errLong = errors.New("text is too long")

// Write is part of io.Writer.
func (w *shortWriter) Write(b []byte) (int, error) {
	if w.Len()+len(b) > maxBody+1 { // the encoder ends with a line break
		return 0, errLong
	}
	return w.Builder.Write(b)
}
