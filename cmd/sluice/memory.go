package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// memoryShare is the part of the container's memory that the heap may take: stacks,
	// buffers of the kernel and the program itself need some as well.
	memoryShare = 0.8
	// bucketShare is the part of that for buckets, and bucketBytes what one takes with its
	// key, on the whole.
	bucketShare = 0.5
	bucketBytes = 400
	// maxBuckets is the most buckets that are kept however much memory there is, and
	// minBuckets the fewest however little.
	maxBuckets, minBuckets = 1_000_000, 10_000
	// maxRequests and minRequests bound the bytes of requests that have come in part: the
	// fewest are four of the largest.
	maxRequests, minRequests = 256 << 20, 16 << 20
)

// limitMemory sets Go's soft limit by the container's, unless GOMEMLIMIT has set it, and
// returns the limit in force; math.MaxInt64 if there is none.
func limitMemory(system fs.FS, log *slog.Logger) int64 {
	limit := debug.SetMemoryLimit(-1) // asks
	if limit != math.MaxInt64 {
		return limit
	}
	container, ok := containerMemory(system)
	if !ok {
		return limit
	}
	limit = int64(float64(container) * memoryShare)
	debug.SetMemoryLimit(limit)
	log.Info("memory is limited by the container", slog.Int64("container_bytes", container), slog.Int64("limit_bytes", limit))
	return limit
}

// garbagePercent is the garbage that may pile up before it is collected, in hundredths of what
// lives: half of Go's default, since most of what lives are buckets, and a call leaves
// little garbage or none.
const garbagePercent = 50

// collectSooner sets garbagePercent, unless GOGC has set something else.
func collectSooner() {
	const usual = 100
	if before := debug.SetGCPercent(garbagePercent); before != usual {
		debug.SetGCPercent(before)
	}
}

// roomForBuckets is the number of buckets that a process with a memory limit may keep.
func roomForBuckets(limit int64) int {
	if limit == math.MaxInt64 {
		return maxBuckets
	}
	return int(max(minBuckets, min(maxBuckets, float64(limit)*bucketShare/bucketBytes)))
}

// roomForRequests is the number of bytes that a process with a memory limit may keep of
// requests that have come in part.
func roomForRequests(limit int64) int64 {
	return max(minRequests, min(maxRequests, limit/8))
}

// containerMemory is the memory limit of the control group that the process is in, version
// 2 or 1, or of the next group above that has one; false if there is none.
func containerMemory(system fs.FS) (int64, bool) {
	text, err := fs.ReadFile(system, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(fields) != 3 {
			continue
		}
		root, name := "sys/fs/cgroup", "memory.max"
		switch {
		case fields[1] == "memory":
			root, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case fields[1] != "":
			continue
		}
		if limit, ok := groupMemory(system, root, fields[2], name); ok {
			return limit, true
		}
	}
	return 0, false
}

// groupMemory looks for a limit from a group up to the root: in a container the group's own
// path is often not to be seen, and its files lie at the root.
func groupMemory(system fs.FS, root, group, name string) (int64, bool) {
	least, found := int64(math.MaxInt64), false
	for {
		text, err := fs.ReadFile(system, path.Join(root, strings.TrimPrefix(path.Clean(group), "/"), name))
		if err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n < unlimitedMemory {
				least, found = min(least, n), true
			}
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) {
			return least, found
		}
		if group == "/" || group == "." || group == "" {
			return least, found
		}
		group = path.Dir(group)
	}
}

// unlimitedMemory is what no machine has: version 1 says a number near the largest, and
// version 2 says max, where there is no limit.
const unlimitedMemory = 1 << 50
