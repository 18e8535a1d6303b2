package rls_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-rls/sluice/rls"
)

// R14, R15: at debug the log says what was looked up, in the form in which rules are
// named, and what it found.
func TestTheLogSaysWhyALimitDoesNotAct(t *testing.T) {
	var log bytes.Buffer
	s := newService(t, shop, rls.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	f := func(call, want string) {
		t.Helper()
		log.Reset()
		decide(t, s, call)
		if got := log.String(); !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: log %q, want one line with %q", call, got, want)
		}
	}
	f("shop: user=ann", `descriptor="user=ann" rule=user hits=1 over=false reason=within`)
	f("shop: user=ann ^9", `descriptor="user=ann" rule=user hits=9 over=true reason=exhausted`)
	f("Shop: user=ann", `domain=Shop descriptor="" rule="" hits=1 over=false reason="unknown domain"`)
	f("shop: User=ann,x=y", `domain=shop descriptor="User=ann > x=y" rule="" hits=1 over=false reason="no rule"`)
	f("shop: user=\x1b[31m", `descriptor="user=\\x1b[31m"`)
	f("shop: token=secret", `descriptor="token=h`)
	f("shop: none=x @1/HOUR", `rule="a limit of the request"`)

	log.Reset()
	quiet := newService(t, shop, rls.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	decide(t, quiet, "shop: user=ann")
	if log.Len() != 0 {
		t.Errorf("log %q above debug, want none", log.String()) // R108
	}
}
