package failover_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/failover"
	"github.com/sluice-rls/sluice/backend/memstore"
)

func bySecond(l *backend.Limit) bool { return l.Period == time.Second }

func TestACallOfBothIsChargedWholeOrNot(t *testing.T) {
	for _, tt := range []struct {
		name       string
		day, sec   uint64 // hits, of 5 tokens each
		mode       backend.Mode
		ok         string
		left, sink uint64 // tokens by the day and by the second afterwards
	}{
		{"both pay", 1, 2, backend.Enforce, "++", 4, 3},
		{"the first cannot", 6, 2, backend.Enforce, "-+", 5, 5},
		{"the second cannot", 1, 6, backend.Enforce, "+-", 5, 5},
		{"none can", 6, 6, backend.Enforce, "--", 5, 5},
		{"one of two quotas pays, the first", 1, 6, backend.Quota, "+-", 4, 5},
		{"one of two quotas pays, the second", 6, 2, backend.Quota, "-+", 5, 3},
		{"none of two quotas pays", 6, 6, backend.Quota, "--", 5, 5},
		{"in shadow each is for itself", 6, 2, backend.Shadow, "-+", 5, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Now()
			first := memstore.New(memstore.Options{Now: func() time.Time { return now }})
			second := memstore.New(memstore.Options{Now: func() time.Time { return now }})
			pair := failover.NewPair(first, second, bySecond, time.Minute)
			takes := []backend.Take{
				{Key: []byte("{t}:day"), Limit: perDay(5), Hits: tt.day, Mode: tt.mode},
				{Key: []byte("{t}:second"), Limit: perSecond(5, 5), Hits: tt.sec, Mode: tt.mode},
			}
			var d [2]backend.Decision
			if err := pair.Take(t.Context(), takes, d[:]); err != nil {
				t.Fatal(err)
			}
			for i, c := range tt.ok {
				if d[i].OK != (c == '+') {
					t.Errorf("decision %d = %+v, want %c", i, d[i], c)
				}
			}
			day, sec := one(t, first, "{t}:day", perDay(5), 0), one(t, second, "{t}:second", perSecond(5, 5), 0)
			if day.Remaining() != tt.left || sec.Remaining() != tt.sink || d[0].Remaining() != tt.left || d[1].Remaining() != tt.sink {
				t.Errorf("%d and %d tokens are left, and %d and %d were told, want %d and %d",
					day.Remaining(), sec.Remaining(), d[0].Remaining(), d[1].Remaining(), tt.left, tt.sink)
			}
		})
	}
}

func TestAnErrorOfTheSecondGivesBackWhatTheFirstCharged(t *testing.T) {
	first, away := newFault(), newFault()
	away.set(0, errors.New("away"))
	pair := failover.NewPair(first, away, bySecond, time.Minute)
	takes := []backend.Take{
		{Key: []byte("day"), Limit: perDay(5), Hits: 1},
		{Key: []byte("second"), Limit: perSecond(5, 5), Hits: 1},
	}
	if err := pair.Take(t.Context(), takes, make([]backend.Decision, 2)); err == nil {
		t.Error("Take: no error")
	}
	if d := one(t, first, "day", perDay(5), 0); d.Remaining() != 5 {
		t.Errorf("%d tokens are left, want 5", d.Remaining())
	}
}
