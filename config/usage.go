package config

import (
	"fmt"
	"io"
	"strings"
)

// usageWidth is the longest line of help in Usage.
const usageWidth = 88

// Usage writes every flag with its variable, its default and what it does, for -h. That
// w cannot be written to is not told: there would be nowhere to tell it.
func Usage(w io.Writer) {
	var out strings.Builder
	out.WriteString("Each setting is a flag or the environment variable in brackets. A flag goes before the\n" +
		"environment, that before the default. An empty value counts as not given.\n")
	p := &parser{}
	for _, group := range p.table() {
		fmt.Fprintf(&out, "\n%s:\n", group.title)
		for i := range group.rows {
			usageOf(&out, &group.rows[i])
		}
	}
	_, _ = io.WriteString(w, out.String())
}

// usageOf writes one setting.
func usageOf(out *strings.Builder, r *row) {
	fmt.Fprintf(out, "  -%s", r.flag())
	if r.env != "" {
		fmt.Fprintf(out, " [%s]", r.env)
	}
	fmt.Fprintf(out, " %s", r.value.kind)
	if r.def != "" {
		fmt.Fprintf(out, ", default %s", r.def)
	}
	out.WriteString("\n")
	const indent = "        "
	line := indent
	for word := range strings.FieldsSeq(r.help) {
		if len(line)+1+len(word) > usageWidth {
			out.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	out.WriteString(line + "\n")
}
