package proc_test

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/internal/proc"
)

func TestRedis(t *testing.T) {
	addr, p := proc.Redis(t, "--requirepass", "secret")
	c := redis.NewClient(&redis.Options{Addr: addr, Password: "secret", DisableIdentity: true})
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // its server is gone
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	p.WaitLog("Ready to accept")
	p.Signal(syscall.SIGSTOP)
	p.Stop()
	if err := p.Wait(); err != nil {
		t.Errorf("Wait() = %v, want nil: a stopped process is continued before it is ended", err)
	}
	if log := p.Log(); !strings.Contains(log, "Redis is now ready to exit") {
		t.Errorf("the log lacks the end: %s", log)
	}
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("the server still answers after Stop")
	}
}

func TestRedisCluster(t *testing.T) {
	addrs := proc.RedisCluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs[:1], DisableIdentity: true})
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // its servers go next
	// Keys a, b and c lie in slots 15495, 3300 and 7365: one on each of three masters.
	for _, key := range []string{"a", "b", "c"} {
		if err := c.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Errorf("SET %s: %v", key, err)
		}
	}
}

func TestStartKilled(t *testing.T) {
	_, p := proc.Redis(t)
	p.Signal(syscall.SIGKILL)
	if err := p.Wait(); err == nil {
		t.Error("Wait() = nil for a killed process, want an error")
	}
	p.Stop()
}

func TestFind(t *testing.T) {
	t.Setenv("SLUICE_REDIS_SERVER", "/somewhere/redis")
	if got := proc.Find(t, "redis-server"); got != "/somewhere/redis" {
		t.Errorf("Find = %q, want the value of SLUICE_REDIS_SERVER", got)
	}
	t.Setenv("SLUICE_SH", "")
	want, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	if got := proc.Find(t, "sh"); got != want {
		t.Errorf("Find = %q, want %q from PATH", got, want)
	}
}
