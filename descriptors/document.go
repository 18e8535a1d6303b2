package descriptors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// readDocument parses the bytes of a file, which must hold one YAML document, and
// returns its root; nil for an empty one.
func readDocument(name string, data []byte) (*yaml.Node, []Problem) {
	if problem, ok := checkText(data); !ok {
		problem.File = name
		return nil, []Problem{problem}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, []Problem{syntaxProblem(name, data, err)}
	}
	for {
		var next yaml.Node
		switch err := decoder.Decode(&next); {
		case errors.Is(err, io.EOF):
			return document.Content[0], nil
		case err != nil:
			return document.Content[0], []Problem{syntaxProblem(name, data, err)}
		case !isNull(next.Content[0]):
			return document.Content[0], []Problem{{
				File: name, Line: next.Line, Column: next.Column,
				Message: "a second YAML document: a file holds one domain; move this one to a file of its own",
			}}
		}
	}
}

// checkText refuses what YAML can't hold: bytes that are not UTF-8 and control
// characters. The parser would name no line.
func checkText(data []byte) (Problem, bool) {
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return Problem{
				Line: line, Column: column,
				Message: fmt.Sprintf("byte 0x%02x is not UTF-8; save the file as UTF-8", data[i]),
			}, false
		case !yamlRune(r):
			return Problem{
				Line: line, Column: column,
				Message: fmt.Sprintf("control character %U; write it as an escape in double quotes", r),
			}, false
		case r == '\n':
			line, column = line+1, 0
		}
		i += size
		column++
	}
	return Problem{}, true
}

// yamlRune reports whether r may stand in a YAML stream (YAML 1.2, production 1).
func yamlRune(r rune) bool {
	switch {
	case r == '\t', r == '\n', r == '\r', r == 0x85:
		return true
	case r < ' ', r >= 0x7f && r < 0xa0, r == 0xfffe, r == 0xffff:
		return false
	}
	return true
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// yamlMistakes are the parser's messages, by a part of each, with what mends them.
var yamlMistakes = []struct {
	part, mend string
	// begins says that the parser's own line, the one where the broken text begins, is the
	// one to show.
	begins bool
	// ahead is how many bytes the parser has read past the place it complains of.
	ahead int
}{
	{part: "found unexpected end of stream", mend: "a quote is not closed", begins: true},
	{part: "could not find expected ':'", mend: "a key is followed by a colon and a blank", begins: true},
	{part: "tab character", mend: "indent with spaces"},
	{part: "expected alphabetic or numeric character", mend: "a value that begins with * or & needs quotes", ahead: 1},
	{part: "unknown anchor", mend: "a value that begins with * needs quotes", ahead: yamlLookahead},
	{part: "unknown escape", mend: "write the backslash twice, or use single quotes", ahead: 1},
	{part: "cannot start any token", mend: "a value that begins with @, % or ` needs quotes, and tabs can't indent", ahead: yamlLookahead},
	{part: "mapping values are not allowed", mend: "a value that holds a colon and a blank needs quotes; else check the indentation", ahead: yamlLookahead},
	{part: "',' or ", mend: "close the bracket, or quote the value that begins with it", ahead: yamlLookahead},
	{part: "did not find expected", mend: "check the indentation, and quote values with brackets or quotes in them", ahead: yamlLookahead},
	{part: "", mend: "check the line", ahead: yamlLookahead},
}

// yamlLookahead is how many bytes the parser reads to tell which token it is at.
const yamlLookahead = 4

// syntaxProblem gives the place of a mistake in the YAML itself. The parser's own line is
// often that of the enclosing list, or missing.
func syntaxProblem(name string, data []byte, err error) Problem {
	own, message := 1, err.Error()
	if m := yamlError.FindStringSubmatch(message); m != nil {
		message = m[2]
		if m[1] != "" {
			own, _ = strconv.Atoi(m[1])
		}
	}
	for _, mistake := range yamlMistakes {
		if !strings.Contains(message, mistake.part) {
			continue
		}
		if !mistake.begins {
			own = failingLine(data, message, mistake.ahead)
		}
		message += "; " + mistake.mend
		break
	}
	return Problem{File: name, Line: own, Column: firstColumn(data, own), Message: "YAML: " + message}
}

// failingLine is the line where the parser gives up. It is fed byte by byte, with line
// breaks after the end, and stops asking soon after the token that it can't use. An
// anchor that is missed is missed later, but has its name in the message.
func failingLine(data []byte, message string, ahead int) int {
	if _, rest, ok := strings.Cut(message, "unknown anchor '"); ok {
		name, _, _ := strings.Cut(rest, "'")
		if before, _, ok := bytes.Cut(data, []byte("*"+name)); ok {
			return 1 + bytes.Count(before, []byte("\n"))
		}
	}
	feed := &byteFeed{data: data}
	decoder := yaml.NewDecoder(feed)
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); err != nil {
			read := data[:max(0, min(feed.read-ahead, len(data)))]
			return 1 + bytes.Count(bytes.TrimRight(read, " \r\n"), []byte("\n"))
		}
	}
}

// byteFeed reads one byte at a time, and some line breaks after the last.
type byteFeed struct {
	data []byte
	read int
}

func (f *byteFeed) Read(p []byte) (int, error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case f.read >= len(f.data)+2*yamlLookahead:
		return 0, io.EOF
	case f.read >= len(f.data):
		p[0] = '\n'
	default:
		p[0] = f.data[f.read]
	}
	f.read++
	return 1, nil
}

// firstColumn is the column of the first character of a line that is no blank.
func firstColumn(data []byte, line int) int {
	for range line - 1 {
		_, rest, ok := bytes.Cut(data, []byte("\n"))
		if !ok {
			return 1
		}
		data = rest
	}
	text, _, _ := bytes.Cut(data, []byte("\n"))
	return 1 + len(text) - len(bytes.TrimLeft(text, " \t"))
}
