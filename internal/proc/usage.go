package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTicks is USER_HZ, which is 100 on every Linux that Go runs on.
const clockTicks = 100

// CPU is the processor time, user's and system's, that the process has used so far, in
// steps of 10 ms. Where the system has no /proc the test is skipped.
func (p *Process) CPU() time.Duration {
	p.tb.Helper()
	// The name, in parentheses, may hold anything; utime and stime are the 12th and 13th
	// field after it.
	text := p.status("stat")
	fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
	var ticks int64
	for _, i := range []int{11, 12} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			p.tb.Fatalf("reading the CPU time of %s: %v", p.name, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks
}

// Resident is the memory of the process in bytes.
func (p *Process) Resident() int64 { return p.kilobytes("VmRSS:") << 10 }

// PeakResident is its memory at its highest.
func (p *Process) PeakResident() int64 { return p.kilobytes("VmHWM:") << 10 }

func (p *Process) kilobytes(name string) int64 {
	p.tb.Helper()
	for line := range strings.Lines(p.status("status")) {
		if text, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			if err != nil {
				p.tb.Fatalf("reading the memory of %s: %v", p.name, err)
			}
			return n
		}
	}
	p.tb.Fatalf("reading the memory of %s: no %s in its status", p.name, name)
	return 0
}

// status is a file of the process below /proc.
func (p *Process) status(name string) string {
	p.tb.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.Pid(), name))
	if os.IsNotExist(err) {
		if _, err := os.Stat("/proc/self"); os.IsNotExist(err) {
			p.tb.Skip("no /proc to measure a process by")
		}
	}
	if err != nil {
		p.tb.Fatalf("measuring %s: %v", p.name, err)
	}
	return string(data)
}
