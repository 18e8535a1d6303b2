package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-rls/sluice/backend/failover"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/config"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls"
)

// board is a switchboard with what it turns.
type board struct {
	*switchboard
	log      bytes.Buffer
	level    *slog.LevelVar
	service  *rls.Service
	fallback *failover.Store
}

func newBoard(t *testing.T) *board {
	t.Helper()
	s, _, err := config.Parse(nil, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	b := &board{fallback: failover.New(memstore.New(memstore.Options{}), failover.Options{OnFailure: onFailures[s.OnFailure]})}
	var log *slog.Logger
	log, b.level = newLogger(s, &b.log)
	rules, _ := descriptors.NewLoader(descriptors.Options{}).Load(nil)
	b.service = rls.New(b.fallback, func() *descriptors.Rules { return rules }, rls.Options{})
	b.switchboard = newSwitchboard(s, log, b.level, b.service, &store{fallbacks: []*failover.Store{b.fallback}})
	t.Cleanup(b.fallback.Close)
	return b
}

func (b *board) file(text string) {
	b.apply([]config.File{{Name: "switches.yaml", Data: []byte(text)}}, nil)
}

// are checks the positions, and that they are in force.
func (b *board) are(t *testing.T, mode, onFailure, level string) {
	t.Helper()
	want := map[string]string{"mode": mode, "on_failure": onFailure, "log_level": level}
	if diff := cmp.Diff(want, b.Switches()); diff != "" {
		t.Errorf("switches (-want +got):\n%s", diff)
	}
	if b.service.Switch() != modes[mode] || b.fallback.OnFailure() != onFailures[onFailure] || b.level.Level() != logLevels[level] {
		t.Errorf("in force are mode %d, on_failure %d and level %v", b.service.Switch(), b.fallback.OnFailure(), b.level.Level())
	}
}

func TestSwitchesAreTurnedByCallsAndByTheFile(t *testing.T) {
	b := newBoard(t)
	b.are(t, "enforce", "local", "info")
	if err := b.Turn(map[string]string{"mode": "shadow", "log_level": "debug"}, "ann"); err != nil {
		t.Fatal(err)
	}
	b.are(t, "shadow", "local", "debug")
	for _, want := range []string{"switch=mode", "old=enforce", "new=shadow", "by=ann"} {
		if !strings.Contains(b.log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, b.log.String())
		}
	}
	b.file("on_failure: deny\n")
	b.are(t, "shadow", "deny", "debug") // the file does not name the others
	b.file("on_failure: deny\nmode: allow\n")
	b.are(t, "allow", "deny", "debug")
	if err := b.Turn(map[string]string{"mode": "deny"}, "ann"); err != nil {
		t.Fatal(err)
	}
	b.file("on_failure: deny\nmode: allow\n")
	b.are(t, "deny", "deny", "debug") // the file says nothing new
	b.file("")
	b.are(t, "enforce", "local", "debug") // the settings again, where the file had a say
	b.log.Reset()
	b.file("")
	if b.log.Len() > 0 {
		t.Errorf("nothing changed, and the log says\n%s", b.log.String())
	}
}

// Who turned what is logged though the log is told to be quiet.
func TestTurnsAreLoggedAtEveryLevel(t *testing.T) {
	b := newBoard(t)
	for _, to := range []map[string]string{{"log_level": "error", "mode": "deny"}, {"mode": "allow"}, {"log_level": "info"}} {
		if err := b.Turn(to, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"old=info new=error", "old=enforce new=deny", "old=deny new=allow", "old=error new=info"} {
		if !strings.Contains(b.log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, b.log.String())
		}
	}
}

func TestABadSwitchTurnsNone(t *testing.T) {
	b := newBoard(t)
	err := b.Turn(map[string]string{"mode": "of", "door": "open", "log_level": "debug"}, "ann")
	if err == nil || !strings.Contains(err.Error(), `mode: "of" is not one of allow, deny, enforce, shadow`) || !strings.Contains(err.Error(), `"door"`) {
		t.Errorf("Turn: %v, want both mistakes", err)
	}
	for _, text := range []string{"mode: of\nlog_level: debug", "- mode", "mode: [deny]", "mode: deny\nmode: allow"} {
		b.log.Reset()
		b.file(text)
		if !strings.Contains(b.log.String(), "switches.yaml") {
			t.Errorf("%q: the log does not name the file:\n%s", text, b.log.String())
		}
	}
	b.apply(nil, errors.New("no such file"))
	b.are(t, "enforce", "local", "info")
}
