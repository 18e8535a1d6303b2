package rls_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls"
)

func TestTheSwitchGoesBeforeTheRules(t *testing.T) {
	rules := load(t, shop)
	reg := prometheus.NewRegistry()
	s := rls.New(memstore.New(memstore.Options{}), func() *descriptors.Rules { return rules }, rls.Options{Registerer: reg})
	f := func(sw rls.Switch, call, want string) {
		t.Helper()
		s.SetSwitch(sw)
		if got := formatAnswer(decide(t, s, call)); got != want || s.Switch() != sw {
			t.Errorf("%s with switch %d: got %s, want %s", call, sw, got, want)
		}
	}
	f(rls.EnforceAll, "shop: banned=x", "OVER_LIMIT: OVER_LIMIT 0 in 1m0s")
	f(rls.ShadowAll, "shop: banned=x", "OK: OVER_LIMIT 0 in 1m0s")
	f(rls.AllowAll, "shop: banned=x & user=ann", "OK: OK, OK")
	f(rls.DenyAll, "shop: free=x & user=ann", "OVER_LIMIT: OVER_LIMIT, OVER_LIMIT")
	f(rls.DenyAll, "nowhere: user=ann", "OVER_LIMIT: OVER_LIMIT")
	f(rls.EnforceAll, "shop: user=ann ^3", "OK: OK 0 in 3s") // nothing was charged meanwhile
	if ok, over := decided(t, reg, "ok switch"), decided(t, reg, "over_limit switch"); ok != 2 || over != 3 {
		t.Errorf("%v and %v descriptors are counted as decided by the switch, want 2 and 3", ok, over)
	}
}
