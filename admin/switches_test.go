package admin_test

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-rls/sluice/admin"
)

// lamp has one switch.
type lamp struct{ state, who string }

func (l *lamp) Switches() map[string]string { return map[string]string{"lamp": l.state} }

func (l *lamp) Turn(to map[string]string, who string) error {
	if !maps.Equal(to, map[string]string{"lamp": "on"}) && !maps.Equal(to, map[string]string{"lamp": "off"}) {
		return errors.New("no such switch")
	}
	l.state, l.who = to["lamp"], who
	return nil
}

func TestSwitches(t *testing.T) {
	l := &lamp{state: "off"}
	h := admin.NewDebug(admin.DebugOptions{Switches: l})
	f := func(method, query, body, site string, wantCode int, want, wantWho string) {
		t.Helper()
		r := httptest.NewRequest(method, "/switches"+query, strings.NewReader(body))
		r.RemoteAddr = "192.0.2.7:99"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != wantCode || !strings.Contains(w.Body.String(), want) || l.who != wantWho {
			t.Errorf("%s %s: %d %q by %q, want %d %q by %q", method, query, w.Code, w.Body, l.who, wantCode, want, wantWho)
		}
	}
	f("GET", "", "", "", http.StatusOK, `{"lamp":"off"}`, "")
	f("GET", "?lamp=on", "", "", http.StatusOK, `{"lamp":"off"}`, "")
	f("POST", "?lamp=on", "", "cross-site", http.StatusForbidden, "", "")
	f("PUT", "?lamp=on", "", "", http.StatusMethodNotAllowed, "POST", "")
	f("POST", "?door=on", "", "", http.StatusBadRequest, "no such switch", "")
	f("POST", "?lamp=on", "", "", http.StatusOK, `{"lamp":"on"}`, "192.0.2.7:99")
	f("POST", "", "lamp=off&by=ann", "", http.StatusOK, `{"lamp":"off"}`, "ann at 192.0.2.7:99")
	f("POST", "", strings.Repeat("x", 5<<10), "", http.StatusBadRequest, "too large", "ann at 192.0.2.7:99")
}
