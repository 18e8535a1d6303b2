package rls

import (
	"context"
	"log/slog"

	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls/wire"
)

// logDecisions writes what each descriptor of a call came to, if the level is Debug:
// what was looked up, in the form in which rules are named, and the rule that it found.
// It is the answer to why a limit does not act.
func (c *call) logDecisions(ctx context.Context, log *slog.Logger) {
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	domain := string(descriptors.AppendPrintable(nil, c.req.Domain))
	for i := range c.slots {
		sl := &c.slots[i]
		found, why := "", "no rule"
		switch {
		case c.dom == nil:
			why = "unknown domain"
		case sl.rule != nil:
			found, why = sl.rule.Path, reasons[c.reason(sl)].reason
		case sl.kind == limited:
			found, why = "a limit of the request", reasons[c.reason(sl)].reason
		}
		log.LogAttrs(ctx, slog.LevelDebug, "decided a descriptor",
			slog.String("domain", domain), slog.String("descriptor", entriesText(c.req.Descriptors[i].Entries)),
			slog.String("rule", found), slog.Uint64("hits", sl.hits), slog.Bool("over", sl.over), slog.String("reason", why))
	}
}

// entriesText writes entries as paths of rules are written.
func entriesText(entries []wire.Entry) string {
	var text []byte
	for i, e := range entries {
		if i > 0 {
			text = append(text, " > "...)
		}
		text = descriptors.AppendPrintable(text, e.Key)
		text = append(text, '=')
		text = descriptors.AppendPrintable(text, e.Value)
	}
	return string(text)
}
