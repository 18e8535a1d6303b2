package config_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-rls/sluice/config"
)

func TestPerSecond(t *testing.T) {
	f := func(want config.Redis, words ...string) {
		t.Helper()
		got := parse(t, nil, words...).PerSecond
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Parse(%q).PerSecond (-want +got):\n%s", words, diff)
		}
	}
	f(config.Redis{})
	f(config.Redis{}, "REDIS_URL=a:1", "REDIS_PERSECOND_URL=b:2")
	like := config.Redis{
		Type: config.Single, Network: "tcp", Addresses: []string{"b:2"}, PoolSize: 10, DialTimeout: 10 * time.Second,
		Budget: 7 * time.Millisecond, MaxInFlight: 1000,
	}
	f(like, "REDIS_URL=a:1", "REDIS_PERSECOND=true", "REDIS_PERSECOND_URL=b:2", "REDIS_BUDGET=7ms", "REDIS_AUTH=first")
	like.Type, like.Addresses, like.Username, like.Password, like.TLS = config.Cluster, []string{"b:2", "c:3"}, "u", "p:@/#", true
	like.PoolSize, like.DialTimeout, like.SkipHostnameVerification = 3, time.Second, true
	f(like, "REDIS_URL=a:1", "REDIS_PERSECOND=true", "REDIS_PERSECOND_URL=b:2,c:3", "REDIS_BUDGET=7ms", "REDIS_PERSECOND_TYPE=cluster",
		"REDIS_PERSECOND_AUTH=u:p:@/#", "REDIS_PERSECOND_TLS=true", "REDIS_PERSECOND_POOL_SIZE=3", "REDIS_PERSECOND_TIMEOUT=1s",
		"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true")
}

func TestPerSecondMistakes(t *testing.T) {
	f := func(want string, words ...string) {
		t.Helper()
		if _, _, err := config.Parse(nil, env(words...)); err == nil || err.Error() != want {
			t.Errorf("Parse(%q): %v, want %s", words, err, want)
		}
	}
	f("REDIS_PERSECOND: is set, and REDIS_PERSECOND_URL is not", "REDIS_URL=a:1", "REDIS_PERSECOND=true")
	f("REDIS_PERSECOND: is set, and REDIS_URL is not", "REDIS_PERSECOND=true", "REDIS_PERSECOND_URL=b:2")
	f(`REDIS_PERSECOND_URL: "b": the address is not host:port, a path, or redis://user:password@host:port/0`,
		"REDIS_URL=a:1", "REDIS_PERSECOND=true", "REDIS_PERSECOND_URL=b")
}
