package main

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func TestContainerMemory(t *testing.T) {
	f := func(name string, want int64, files ...string) {
		t.Helper()
		system := fstest.MapFS{}
		for i := 0; i < len(files); i += 2 {
			system[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
		}
		got, ok := containerMemory(system)
		if ok != (want > 0) || ok && got != want {
			t.Errorf("%s: containerMemory() = %d, %v, want %d", name, got, ok, want)
		}
	}
	const group, v1, v2 = "proc/self/cgroup", "sys/fs/cgroup/memory/", "sys/fs/cgroup/"
	f("no control groups", 0)
	f("version 2 in a container", 268435456, group, "0::/\n", v2+"memory.max", "268435456\n")
	f("version 2 without a limit", 0, group, "0::/\n", v2+"memory.max", "max\n")
	f("version 2 on a host", 1000, group, "0::/a/b\n", v2+"a/b/memory.max", "max\n", v2+"a/memory.max", "1000\n")
	f("the least of those above", 500, group, "0::/a/b\n", v2+"a/b/memory.max", "1000\n", v2+"a/memory.max", "500\n")
	f("a path that is not to be seen", 700, group, "0::/../../pod\n", v2+"memory.max", "700\n")
	f("version 1", 900, group, "5:cpu,cpuacct:/x\n4:memory:/docker/1\n", v1+"memory.limit_in_bytes", "900\n")
	f("version 1 without a limit", 0, group, "4:memory:/\n", v1+"memory.limit_in_bytes", "9223372036854771712\n")
	f("nonsense", 0, group, "memory\n0::/\n", v2+"memory.max", "much\n")
}

func TestRoomForBuckets(t *testing.T) {
	for limit, want := range map[int64]int{
		math.MaxInt64: 1_000_000,
		1 << 40:       1_000_000,
		128 << 20:     167_772,
		1 << 20:       10_000,
	} {
		if got := roomForBuckets(limit); got != want {
			t.Errorf("roomForBuckets(%d) = %d, want %d", limit, got, want)
		}
	}
}

func TestRoomForRequests(t *testing.T) {
	for limit, want := range map[int64]int64{math.MaxInt64: 256 << 20, 1 << 30: 128 << 20, 32 << 20: 16 << 20} {
		if got := roomForRequests(limit); got != want {
			t.Errorf("roomForRequests(%d) = %d, want %d", limit, got, want)
		}
	}
}

func TestCollectSooner(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	f := func(set, want int) {
		t.Helper()
		debug.SetGCPercent(set)
		collectSooner()
		if got := debug.SetGCPercent(set); got != want {
			t.Errorf("%d percent after %d, want %d", got, set, want)
		}
	}
	f(100, garbagePercent)
	f(30, 30)
	f(-1, -1)
}
