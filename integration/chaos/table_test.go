//go:build integration

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// format is the table of the rows.
func format(rows []row) string {
	var b strings.Builder
	b.WriteString("| fault | calls | errors | over 5 ms | over 10 ms | p99.9 | worst | control: p99.9 | over 10 ms | admitted : ideal | degraded after | recovered after |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %s | %s | %s | %d | %d : %.0f = %.2f | %s | %s |\n",
			r.fault, len(r.seen.calls), r.seen.errors, r.seen.over(budget), r.seen.over(late),
			millis(r.seen.percentile(999)), millis(r.seen.percentile(1000)), millis(r.control.percentile(999)), r.control.over(late),
			r.seen.hot, r.ideal, float64(r.seen.hot)/r.ideal, moment(r.degrade), moment(r.recover))
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

// write puts the table into the page.
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
