//go:build integration

package chaos

import (
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/internal/proc"
)

// hard is a password with all that separates the parts of an address.
const hard = "p:a@s/s#w?o%rd"

// works checks that Redis decides calls, and that its limit holds.
func works(t *testing.T, env settings) *instance {
	t.Helper()
	s := start(t, env)
	s.ready()
	s.decides()
	if n := s.passed("day", "works", 40); n != 30 {
		t.Errorf("%d of 40 calls passed, want 30", n)
	}
	return s
}

func TestPasswordsAndUsers(t *testing.T) {
	t.Parallel()
	addr, _ := proc.Redis(t, "--requirepass", hard)
	admin := redis.NewClient(&redis.Options{Addr: addr, Password: hard, Protocol: 2, DisableIdentity: true})
	defer admin.Close() //nolint:errcheck // the server goes as well
	acl := []any{"ACL", "SETUSER", "limiter", "on", ">" + hard, "~*", "+@all", "-@dangerous", "-@admin"}
	if err := admin.Do(t.Context(), acl...).Err(); err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string]settings{
		"password alone":          {"REDIS_URL": addr, "REDIS_AUTH": ":" + hard},
		"user and password":       {"REDIS_URL": addr, "REDIS_AUTH": "limiter:" + hard},
		"in the address":          {"REDIS_URL": "redis://limiter:" + escape(hard) + "@" + addr + "/3"},
		"REDIS_AUTH goes before":  {"REDIS_URL": "redis://nobody:wrong@" + addr, "REDIS_AUTH": "limiter:" + hard},
		"the default user's name": {"REDIS_URL": addr, "REDIS_AUTH": "default:" + hard},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, env)
			s.ready()
			s.decides()
			if log := s.Log(); strings.Contains(log, hard) || strings.Contains(log, escape(hard)) {
				t.Errorf("the log has the password:\n%s", log)
			}
		})
	}
	t.Run("wrong", func(t *testing.T) {
		s := start(t, settings{"REDIS_URL": addr, "REDIS_AUTH": "limiter:wrong"})
		line := s.WaitLog("waiting for Redis")
		if !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "WRONGPASS") || strings.Contains(line, "wrong\"") {
			t.Errorf("the log says %q, want an error that names WRONGPASS", line)
		}
		if !s.passes("day", "x") {
			t.Error("a call was denied, want that the local share lets it pass")
		}
	})
}

// escape writes a password as it stands in an address.
func escape(password string) string {
	return strings.NewReplacer("%", "%25", ":", "%3A", "@", "%40", "/", "%2F", "#", "%23", "?", "%3F").Replace(password)
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "r.sock")
	proc.Redis(t, "--unixsocket", path)
	works(t, settings{"REDIS_URL": path})
}

func TestIPv6(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Log("this machine has no IPv6: nothing to test")
		return
	}
	l.Close() //nolint:errcheck // nothing was accepted
	addr, _ := proc.Redis(t, "--bind", "::1")
	works(t, settings{"REDIS_URL": "[::1]:" + strconv.Itoa(port(t, addr))})
}

// R70: the name is checked; an authority and a client certificate of one's own, and the switch that skips the name.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca, other := proc.NewAuthority(t), proc.NewAuthority(t)
	cert, key := ca.Issue(t, "redis.test")
	clientCert, clientKey := ca.Issue(t, "sluice.test")
	number := proc.FreePort(t)
	proc.Redis(t, "--tls-port", strconv.Itoa(number), "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", ca.File, "--tls-auth-clients", "yes")
	at := local(number)
	works(t, settings{
		"REDIS_URL": at, "REDIS_TLS": "true", "REDIS_TLS_CACERT": ca.File,
		"REDIS_TLS_CLIENT_CERT": clientCert, "REDIS_TLS_CLIENT_KEY": clientKey,
	})
	for name, tt := range map[string]struct {
		env  settings
		want string
	}{
		"no client certificate": {settings{"REDIS_URL": "rediss://" + at, "REDIS_TLS_CACERT": ca.File}, "waiting for Redis"},
		"another authority": {settings{
			"REDIS_URL": "rediss://" + at, "REDIS_TLS_CACERT": other.File,
			"REDIS_TLS_CLIENT_CERT": clientCert, "REDIS_TLS_CLIENT_KEY": clientKey,
		}, "authority is not known"},
		"another name": {settings{
			"REDIS_URL": "rediss://localhost:" + strconv.Itoa(number), "REDIS_TLS_CACERT": ca.File,
			"REDIS_TLS_CLIENT_CERT": clientCert, "REDIS_TLS_CLIENT_KEY": clientKey,
		}, "for another name"},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, tt.env).WaitLog(tt.want)
		})
	}
	t.Run("another name is let through", func(t *testing.T) {
		s := start(t, settings{
			"REDIS_URL": "rediss://localhost:" + strconv.Itoa(number), "REDIS_TLS_CACERT": ca.File, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "true",
			"REDIS_TLS_CLIENT_CERT": clientCert, "REDIS_TLS_CLIENT_KEY": clientKey,
		})
		s.ready()
	})
}

// R68, R69: the servers and the sentinels have passwords of their own, and the limit holds over a failover.
func TestSentinelWithPasswords(t *testing.T) {
	t.Parallel()
	set := proc.RedisSentinel(t, "data-pass", "sentinel-pass")
	s := works(t, settings{
		"REDIS_TYPE": "SENTINEL", "REDIS_URL": set.Name + "," + strings.Join(set.Sentinels, ","),
		"REDIS_AUTH": "data-pass", "REDIS_SENTINEL_AUTH": "sentinel-pass",
	})
	set.Servers[0].Signal(syscall.SIGKILL)
	s.passed("day", "meanwhile", 20)
	s.decides()
	if n := s.passed("day", "works", 10); n > 0 {
		t.Errorf("%d calls passed after the failover, want none: the limit was used up", n)
	}
}

// Slots move while calls are made: MOVED and ASK are followed, and nothing is charged twice
// or not at all.
func TestReshardUnderLoad(t *testing.T) {
	t.Parallel()
	addrs := proc.RedisCluster(t, 3)
	s := start(t, settings{"REDIS_TYPE": "CLUSTER", "REDIS_URL": addrs[0], "REDIS_BUDGET": "500ms"})
	s.ready()
	a := redis.NewClient(&redis.Options{Addr: addrs[0], Protocol: 2, DisableIdentity: true})
	defer a.Close() //nolint:errcheck // the servers go as well
	b := redis.NewClient(&redis.Options{Addr: addrs[1], Protocol: 2, DisableIdentity: true})
	defer b.Close() //nolint:errcheck // the servers go as well
	c := redis.NewClient(&redis.Options{Addr: addrs[2], Protocol: 2, DisableIdentity: true})
	defer c.Close() //nolint:errcheck // the servers go as well
	const tenants = 20
	for i := range tenants {
		if n := s.passed("day", "tenant"+strconv.Itoa(i), 10); n != 10 {
			t.Fatalf("%d of 10 calls passed", n)
		}
	}
	done := make(chan error, 1)
	go func() { done <- moveAll(t, a, b, c, addrs[1]) }()
	for round := 0; ; round++ {
		for i := range tenants {
			s.passed("day", "tenant"+strconv.Itoa(i), 1)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		default:
			if round < 40 {
				continue
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		break
	}
	if n := s.metric("ratelimit_decisions_total", "local_share"); n > 0 {
		t.Errorf("%v decisions were made without Redis", n)
	}
	left := 0
	for i := range tenants {
		left += s.passed("day", "tenant"+strconv.Itoa(i), 40)
	}
	if passed := int(s.metric("ratelimit_decisions_total", `reason="within"`)); passed != 30*tenants {
		t.Errorf("%d calls passed in all, and %d of them at last, want 30 of each of %d tenants", passed, left, tenants)
	}
}

// moveAll moves all slots of a that have keys to b, one after another.
func moveAll(t *testing.T, a, b, c *redis.Client, to string) error {
	t.Helper()
	ctx := t.Context()
	host, number, err := net.SplitHostPort(to)
	if err != nil {
		return err
	}
	idA, idB := a.Do(ctx, "CLUSTER", "MYID").Val(), b.Do(ctx, "CLUSTER", "MYID").Val()
	for slot := range 16384 / 3 {
		keys, err := a.ClusterGetKeysInSlot(ctx, slot, 1000).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			continue
		}
		err = errors.Join(
			b.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", idA).Err(),
			a.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", idB).Err())
		for _, key := range keys {
			err = errors.Join(err, a.Migrate(ctx, host, number, key, 0, 5*time.Second).Err())
		}
		for _, node := range []*redis.Client{b, a, c} {
			err = errors.Join(err, node.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", idB).Err())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// R67: connections to what was the master are dropped and dialled anew.
// A name or an address moves to the new master, and the connections to the old one stay,
// where every write says READONLY.
func TestTheMasterMovesBehindOneAddress(t *testing.T) {
	t.Parallel()
	old, _ := proc.Redis(t)
	next, _ := proc.Redis(t)
	p := proc.NewProxy(t, old)
	s := works(t, settings{"REDIS_URL": p.Addr()})
	c := redis.NewClient(&redis.Options{Addr: old, Protocol: 2, DisableIdentity: true})
	defer c.Close() //nolint:errcheck // the server goes as well
	p.Retarget(next)
	if err := c.Do(t.Context(), "REPLICAOF", "127.0.0.1", strconv.Itoa(port(t, next))).Err(); err != nil {
		t.Fatal(err)
	}
	s.decides()
}

// Limits by the second lie in a Redis of their own, and only these are degraded without it.
func TestPerSecondRedis(t *testing.T) {
	t.Parallel()
	first, _ := proc.Redis(t)
	second, p := proc.Redis(t, "--requirepass", hard)
	s := works(t, settings{
		"REDIS_URL": first, "REDIS_PERSECOND": "true", "REDIS_PERSECOND_URL": second, "REDIS_PERSECOND_AUTH": ":" + hard,
	})
	s.passed("hot", "x", 10)
	c := redis.NewClient(&redis.Options{Addr: first, Protocol: 2, DisableIdentity: true})
	defer c.Close() //nolint:errcheck // the server goes as well
	if keys := c.Keys(t.Context(), "*hot*").Val(); len(keys) > 0 {
		t.Errorf("the first Redis has %q, want no limit by the second", keys)
	}
	kill(t, p)
	eventually(t, "the breaker opens", func() error {
		s.passes("hot", "x")
		if s.metric("ratelimit_breaker_state", `redis="persecond"`) == 0 {
			return errors.New("the second Redis is still asked")
		}
		return nil
	})
	if n := s.metric("ratelimit_breaker_state", `redis="main"`); n != 0 {
		t.Error("the breaker of the first Redis is open as well")
	}
	if n := s.passed("day", "works", 10); n != 0 {
		t.Errorf("%d calls of a limit by the day passed, want none: it was used up", n)
	}
	if s.passed("hot", "y", 10) != 10 {
		t.Error("calls of a limit by the second were denied, want the local share")
	}
}

// A proxy that knows no scripts is of no use, and says so at the start.
func TestAServerWithoutScripts(t *testing.T) {
	t.Parallel()
	addr, _ := proc.Redis(t, "--rename-command", "EVAL", "", "--rename-command", "EVALSHA", "")
	s := launch(t, settings{"REDIS_URL": addr, "START": "fail-fast", "START_TIMEOUT": "300ms"}, nil)
	err := s.process.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("the process ended with %v, want exit code 1", err)
	}
	for _, want := range []string{"level=ERROR", "does not know EVALSHA", "START_TIMEOUT"} {
		if !strings.Contains(s.process.Log(), want) {
			t.Errorf("the log lacks %q:\n%s", want, s.process.Log())
		}
	}
}
