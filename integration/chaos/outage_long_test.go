//go:build integration && long

package chaos

import (
	"flag"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-rls/sluice/internal/proc"
)

var outageLasts = flag.Duration("outage", 10*time.Minute, "how long TestALongOutage keeps Redis away")

// An outage of ten minutes leaves behind no goroutine, no connection and no memory, in
// whatever way Redis is away, and no call without an answer in time.
func TestALongOutage(t *testing.T) {
	for name, away := range map[string]func(t *testing.T) (addr string, begin, end func()){
		"hung": func(t *testing.T) (string, func(), func()) {
			t.Helper()
			addr, p := proc.Redis(t)
			return addr, func() { p.Signal(syscall.SIGSTOP) }, func() { p.Signal(syscall.SIGCONT) }
		},
		"refused": func(t *testing.T) (string, func(), func()) {
			t.Helper()
			addr, p := proc.Redis(t)
			return addr, func() { p.Signal(syscall.SIGKILL); <-p.Done() }, func() { proc.RedisOn(t, port(t, addr)) }
		},
		"packets get lost": func(t *testing.T) (string, func(), func()) {
			t.Helper()
			addr, p := proc.Redis(t)
			var free func()
			return addr, func() {
					p.Signal(syscall.SIGKILL)
					<-p.Done()
					_, free = swallow(t, port(t, addr))
				}, func() {
					free()
					proc.RedisOn(t, port(t, addr))
				}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, begin, end := away(t)
			s, control := start(t, settings{"REDIS_URL": addr, "PREFETCH": "auto"}), start(t, nil)
			s.ready()
			l := startLoad(t, []*instance{s}, control, 50)
			pause(2 * time.Second)
			before := s.least(5 * time.Second)
			begin()
			early := s.least(20 * time.Second)
			pause(*outageLasts - 40*time.Second)
			later := s.least(20 * time.Second)
			end()
			returned := time.Now()
			eventually(t, "Redis decides again", func() error { return each([]*instance{s}, false) })
			recover := time.Since(returned)
			after := s.least(5 * time.Second)
			l.end()
			t.Logf("goroutines, open files and MiB of memory before %v, in the first 20 s %v, in the last %v, afterwards %v; back in %v; "+
				"%d calls, %d errors, %d over %v, p99.9 %v, worst %v; control: %d over, p99.9 %v",
				before, early, later, after, recover, len(l.seen.calls), l.seen.errors, l.seen.over(late), late,
				l.seen.percentile(999), l.seen.percentile(1000), l.calm.over(late), l.calm.percentile(999))
			if later.goroutines > early.goroutines+5 || after.goroutines > before.goroutines+5 { // some calls are always under way
				t.Error("goroutines have grown")
			}
			if later.files > early.files+2 || after.files > before.files+12 { // the pool has ten connections
				t.Error("open files have grown")
			}
			if later.memory > early.memory+20 {
				t.Error("memory has grown")
			}
			r := row{seen: l.seen, control: l.calm}
			if alone, most := l.seen.alone(&l.calm), r.allowance(); l.seen.errors > 0 || float64(alone) > most {
				t.Errorf("%d calls had no answer, and %d a late one, want %.0f at most", l.seen.errors, alone, most)
			}
			if recover > back {
				t.Errorf("Redis decided again %v after it was back", recover)
			}
		})
	}
}

// usage is what a process takes.
type usage struct{ goroutines, files, memory float64 }

// least is the least that an instance takes within a while: what its calls take comes and
// goes.
func (s *instance) least(while time.Duration) usage {
	s.t.Helper()
	u := usage{math.MaxFloat64, math.MaxFloat64, math.MaxFloat64}
	for end := time.Now().Add(while); time.Now().Before(end); pause(200 * time.Millisecond) {
		u.goroutines = min(u.goroutines, s.metric("go_goroutines"))
		u.files = min(u.files, s.metric("process_open_fds"))
		u.memory = min(u.memory, math.Round(s.metric("process_resident_memory_bytes")/(1<<20)))
	}
	return u
}
