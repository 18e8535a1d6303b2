package rls

import (
	"context"
	"log/slog"

	"github.com/sluice-rls/sluice/descriptors"
)

// logDecisions writes what each descriptor of a call came to, if the level is Debug:
// what was looked up, in the form in which rules are named, and the rule that it found.
// It is the answer to why a limit does not act.
func (c *call) logDecisions() {
	ctx, log := context.Background(), c.s.log // a line of the log is no part of the call
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	domain := string(descriptors.AppendPrintable(nil, c.req.Domain[:min(len(c.req.Domain), 128)]))
	for i := range c.slots {
		sl := &c.slots[i]
		looked := ""
		if c.dom != nil { // what of an unknown domain is sensitive, nobody says
			looked = string(c.dom.AppendEntries(nil, c.entries(&c.req.Descriptors[i])))
		}
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
			slog.String("domain", domain), slog.String("descriptor", looked),
			slog.String("rule", found), slog.Uint64("hits", sl.hits), slog.Bool("over", sl.over), slog.String("reason", why))
	}
}
