//go:build integration

package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// instances share the limits of a row.
	instances = 3
	// hotRate is the limit of the hot key, for all of them, and its burst.
	hotRate = 60.0
)

// row is what came of a fault.
type row struct {
	fault string
	seen  seen
	ideal float64 // calls of the hot key that one bucket would have let pass
	// degrade and recover are the times from the fault until every instance decides without
	// Redis, and from its end until every one decides with it again; negative: never, as it
	// need not.
	degrade, recover time.Duration
}

// TestFaults runs the matrix and prints its table. A caller must get an answer whatever
// happens, and nobody a second bucket; how late answers may be on a machine that does other
// things meanwhile, it does not judge but far beyond the bound.
func TestFaults(t *testing.T) {
	var rows []row
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { rows = append(rows, f.run(t)) }) // a row that is skipped has no line
	}
	if t.Failed() {
		return
	}
	table := format(rows)
	t.Logf("\n%s", table)
	if *update {
		if err := write(table); err != nil {
			t.Error(err)
		}
	}
}

func (f *fault) run(t *testing.T) row {
	t.Helper()
	lasts, perSecond := 1500*time.Millisecond, 100
	if *long {
		lasts, perSecond = 10*time.Second, 200
	}
	s := f.stage(t)
	all := make([]*instance, instances)
	s.env["INSTANCES"] = strconv.Itoa(instances)
	for i := range all {
		all[i] = start(t, s.env)
	}
	for _, one := range all {
		one.ready()
	}
	l := startLoad(t, all, perSecond)
	pause(lasts / 2)
	before := all[0].metric("go_goroutines")
	r := row{fault: f.name, degrade: -1, recover: -1}
	began := time.Now()
	s.begin()
	if !s.keeps {
		eventually(t, "an instance decides without Redis", func() error { return each(all, true) })
		r.degrade = time.Since(began)
	}
	if s.end != nil {
		pause(lasts - time.Since(began))
		began = time.Now()
		s.end()
	}
	if !s.keeps {
		eventually(t, "every instance decides with Redis again", func() error { return each(all, false) })
		r.recover = time.Since(began)
	}
	pause(lasts / 2)
	r.seen = l.end()
	r.ideal = hotRate * (1 + r.seen.elapsed.Seconds())
	f.judge(t, &s, &r)
	if after := all[0].metric("go_goroutines"); after > before+50 {
		t.Errorf("an instance has %v goroutines, and had %v before", after, before)
	}
	return r
}

// each says which instances are not as they should be: some degraded, or none.
func each(all []*instance, degraded bool) error {
	for i, one := range all {
		if one.degraded() == degraded && degraded {
			return nil // with a cluster, some instances may not have asked the dead server
		}
		if one.degraded() && !degraded {
			return fmt.Errorf("instance %d decides without Redis", i)
		}
	}
	if degraded {
		return errors.New("all decide with Redis")
	}
	return nil
}

// judge fails a row that breaks a promise, with room for a machine that is busy.
func (f *fault) judge(t *testing.T, s *scene, r *row) {
	t.Helper()
	if r.seen.errors > 0 || r.seen.calls == 0 {
		t.Errorf("%d of %d calls had no answer", r.seen.errors, r.seen.calls)
	}
	if p := r.seen.percentile(900); p > 100*time.Millisecond {
		t.Errorf("9 of 10 answers took up to %v", p)
	}
	most := 1.1 * r.ideal
	if s.loses { // one bucket more, and what the instances let through before they knew
		most += 2 * hotRate
	}
	if float64(r.seen.hot) > most || float64(r.seen.hot) < 0.7*r.ideal {
		t.Errorf("%d calls of the hot key passed, want about %.0f", r.seen.hot, r.ideal)
	}
	if s.end != nil && r.recover > 3*time.Second {
		t.Errorf("Redis decided again %v after it was back", r.recover)
	}
}

// pause lets the load go on.
func pause(d time.Duration) { <-time.After(d) }

func format(rows []row) string {
	var b strings.Builder
	b.WriteString("| fault | calls | errors | over 10 ms | p99.9 | worst | admitted : ideal | degraded after | recovered after |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s | %s | %.2f | %s | %s |\n", r.fault, r.seen.calls, r.seen.errors, r.seen.late,
			millis(r.seen.percentile(999)), millis(r.seen.worst), float64(r.seen.hot)/r.ideal, moment(r.degrade), moment(r.recover))
	}
	return b.String()
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func moment(d time.Duration) string {
	if d < 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// The table stands between these lines of the page.
const (
	tableBegins = "<!-- made by integration/chaos -->\n"
	tableEnds   = "<!-- end of integration/chaos -->\n"
)

func write(table string) error {
	path := filepath.Join(root, "docs", "reliability.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(page), tableBegins)
	_, tail, okToo := strings.Cut(rest, tableEnds)
	if !ok || !okToo {
		return fmt.Errorf("writing the table: %s has no place for it", path)
	}
	return os.WriteFile(path, []byte(head+tableBegins+table+tableEnds+tail), 0o644) //nolint:gosec // a page for everyone
}
