package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-rls/sluice/config"
)

// R71: addresses as URLs and as host:port.
func TestRedisAddresses(t *testing.T) {
	f := func(want config.Redis, words ...string) {
		t.Helper()
		s := parse(t, nil, words...)
		if s.Embedded() {
			t.Errorf("Parse(%q).Embedded() = true", words)
		}
		ignore := cmpopts.IgnoreFields(config.Redis{}, "PoolSize", "DialTimeout", "Budget", "MaxInFlight")
		if want.Type == "" {
			want.Type = config.Single
		}
		if want.Network == "" {
			want.Network = "tcp"
		}
		if diff := cmp.Diff(want, s.Redis, ignore); diff != "" {
			t.Errorf("Parse(%q).Redis (-want +got):\n%s", words, diff)
		}
	}
	at := func(addresses ...string) []string { return addresses }

	f(config.Redis{Addresses: at("redis:6379")}, "REDIS_URL=redis:6379")
	f(config.Redis{Addresses: at("redis:6379")}, "REDIS_URL=redis:6379", "REDIS_SOCKET_TYPE=TCP", "BACKEND_TYPE=redis", "REDIS_TYPE=single")
	f(config.Redis{Addresses: at("[::1]:6379")}, "REDIS_URL=[::1]:6379")
	f(config.Redis{Addresses: at("/run/r.sock"), Network: "unix"}, "REDIS_URL=/run/r.sock")
	f(config.Redis{Addresses: at("r.sock"), Network: "unix"}, "REDIS_URL=r.sock", "REDIS_SOCKET_TYPE=unix")
	f(config.Redis{Addresses: at("/run/a@b"), Network: "unix", Password: "x"}, "REDIS_URL=unix:///run/a@b", "REDIS_AUTH=x")
	f(config.Redis{Addresses: at("h:6379")}, "REDIS_URL=redis://h")
	f(config.Redis{Addresses: at("[::1]:6379")}, "REDIS_URL=redis://[::1]/")
	f(config.Redis{Addresses: at("h:1"), Username: "u", Password: "p:q", DB: 3}, "REDIS_URL=redis://u:p:q@h:1/3")
	f(config.Redis{Addresses: at("h:1"), Password: "p", TLS: true}, "REDIS_URL=rediss://:p@h:1")
	f(config.Redis{Addresses: at("h:1"), Password: "p@/#,?%"}, "REDIS_URL=redis://p@/#,?%25@h:1")
	f(config.Redis{Addresses: at("h:1"), Username: "a:b", Password: "é"}, "REDIS_URL=redis://a%3Ab:%c3%a9@h:1")
	f(config.Redis{Addresses: at("h:1"), Password: "env"}, "REDIS_URL=redis://u:url@h:1", "REDIS_AUTH=env")
	f(config.Redis{Addresses: at("h:1"), Username: "u", Password: "a:b"}, "REDIS_URL=h:1", "REDIS_AUTH=u:a:b")
	f(config.Redis{Addresses: at("h:1"), TLS: true}, "REDIS_URL=h:1", "REDIS_TLS=true")
	f(config.Redis{Addresses: at("h:1"), TLS: true}, "REDIS_URL=rediss://h:1", "REDIS_TLS=false")
	f(config.Redis{Type: config.Cluster, Addresses: at("a:1", "b:2")}, "REDIS_URL=a:1, b:2", "REDIS_TYPE=cluster")
	f(config.Redis{Type: config.Cluster, Addresses: at("a:1", "b:6379"), Password: "p,q", TLS: true},
		"REDIS_URL=rediss://:p,q@a:1,b/0", "REDIS_TYPE=CLUSTER")
	f(config.Redis{Type: config.Sentinel, Master: "main", Addresses: at("a:1", "b:2"), SentinelUsername: "s", SentinelPassword: "t"},
		"REDIS_URL=main,a:1,b:2", "REDIS_TYPE=SENTINEL", "REDIS_SENTINEL_AUTH=s:t")
	f(config.Redis{Type: config.Sentinel, Master: "main", Addresses: at("a:1"), Password: "p", DB: 2},
		"REDIS_URL=redis://:p@main,a:1/2", "REDIS_TYPE=SENTINEL")
}

// TestRedisZeros: 0 is no pool and no time, but the default.
func TestRedisZeros(t *testing.T) {
	r := parse(t, nil, "REDIS_URL=h:1", "REDIS_POOL_SIZE=0", "REDIS_TIMEOUT=0").Redis
	if r.PoolSize != 10 || r.DialTimeout != 10*time.Second {
		t.Errorf("pool %d, dial timeout %v, want the defaults", r.PoolSize, r.DialTimeout)
	}
}

// R71: a wrong address is an error that shows no password.
func TestRedisMistakes(t *testing.T) {
	f := func(want string, words ...string) {
		t.Helper()
		_, _, err := config.Parse(nil, env(words...))
		if err == nil || err.Error() != want {
			t.Errorf("Parse(%q):\n got %v\nwant %s", words, err, want)
		}
	}
	const form = "the address is not host:port, a path, or redis://user:password@host:port/0"
	f(`REDIS_URL: "redis": `+form, "REDIS_URL=redis")
	f(`REDIS_URL: "redis://": `+form, "REDIS_URL=redis://")
	f(`REDIS_URL: "redis://a:***": the port is not a number from 1 to 65535`, "REDIS_URL=redis://a:b")
	f(`REDIS_URL: "h:0": the port is not a number from 1 to 65535`, "REDIS_URL=h:0")
	f(`REDIS_URL: "h:***": the port is not a number from 1 to 65535`, "REDIS_URL=h:70000")
	f(`REDIS_URL: "http://h:1": the scheme is not redis, rediss or unix`, "REDIS_URL=http://h:1")
	f(`REDIS_URL: "redis://h:1/x": the database after the / is not a number`, "REDIS_URL=redis://h:1/x")
	f(`REDIS_URL: "redis://h:1?***": the address has options after ? or #, and none is known`, "REDIS_URL=redis://h:1?db=3")
	f(`REDIS_URL: "redis://***@h:1": the credentials hold a % that begins no escape: write it %25`, "REDIS_URL=redis://:a%@h:1")
	f(`REDIS_URL: "redis://h:1/1": database 1: a cluster has only database 0`, "REDIS_URL=redis://h:1/1", "REDIS_TYPE=CLUSTER")
	f(`REDIS_URL: "a:1,b:2": a list of addresses needs REDIS_TYPE CLUSTER or SENTINEL`, "REDIS_URL=a:1,b:2")
	f(`REDIS_URL: "a:1,redis://b:2": the scheme stands once, before the whole list`,
		"REDIS_URL=a:1,redis://b:2", "REDIS_TYPE=CLUSTER")
	f(`REDIS_URL: "a:1,": `+form, "REDIS_URL=a:1,", "REDIS_TYPE=CLUSTER")
	f(`REDIS_URL: "main": SENTINEL needs the master's name and at least one sentinel: name,host:port`,
		"REDIS_URL=main", "REDIS_TYPE=SENTINEL")
	f(`REDIS_URL: "a:1,b:2": SENTINEL needs the master's name before the sentinels: name,host:port`,
		"REDIS_URL=a:1,b:2", "REDIS_TYPE=SENTINEL")
	f(`REDIS_URL: "/run/r": CLUSTER needs host:port addresses, not a path`, "REDIS_URL=/run/r", "REDIS_TYPE=CLUSTER")
	f(`REDIS_URL: "/run/r": the socket type is "tcp", and the address is a path`, "REDIS_URL=/run/r", "REDIS_SOCKET_TYPE=tcp")
	f(`REDIS_URL: "h:1": the socket type is "unix", and the address is not a path`, "REDIS_URL=h:1", "REDIS_SOCKET_TYPE=unix")
	f(`REDIS_URL: "redis://h": the socket type is "unix", and the address is not a path`,
		"REDIS_URL=redis://h", "REDIS_SOCKET_TYPE=unix")
	f(`REDIS_URL: "unix://": the path is empty`, "REDIS_URL=unix://")
	f(`REDIS_TLS: is set for a unix socket, which has no TLS`, "REDIS_URL=/run/r", "REDIS_TLS=true")
}

// TestHalfARedis: any sign that Redis is wanted needs an address; what Kubernetes sets
// by itself is no sign.
func TestHalfARedis(t *testing.T) {
	for _, word := range []string{
		"REDIS_TYPE=SINGLE", "REDIS_SOCKET_TYPE=tcp", "REDIS_AUTH=x", "REDIS_TLS=false", "BACKEND_TYPE=redis",
	} {
		name, _, _ := strings.Cut(word, "=")
		_, _, err := config.Parse(nil, env(word))
		if want := name + ": is set, and REDIS_URL is not"; err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", word, err, want)
		}
		flag := "-" + strings.ReplaceAll(strings.ToLower(word), "_", "-")
		if _, _, err := config.Parse([]string{flag}, env()); err == nil {
			t.Errorf("%s: no error", flag)
		}
		if s := parse(t, nil, name+"="); !s.Embedded() {
			t.Errorf("%s empty: Embedded() = false", name)
		}
	}
	s := parse(t, nil, "REDIS_PORT=tcp://10.0.0.1:6379", "REDIS_SERVICE_HOST=10.0.0.1", "REDIS_POOL_SIZE=5", "REDIS_BUDGET=1s")
	if !s.Embedded() {
		t.Error("Embedded() = false with REDIS_PORT alone")
	}
}

func TestRedisTLSFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pem")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(want string, words ...string) {
		t.Helper()
		_, _, err := config.Parse(nil, env(append(words, "REDIS_URL=h:1")...))
		if got := ""; err != nil {
			if got = err.Error(); got != want {
				t.Errorf("Parse(%q):\n got %s\nwant %s", words, got, want)
			}
		} else if want != "" {
			t.Errorf("Parse(%q): no error, want %s", words, want)
		}
	}
	f("", "REDIS_TLS=true", "REDIS_TLS_CACERT="+file, "REDIS_TLS_CLIENT_CERT="+file, "REDIS_TLS_CLIENT_KEY="+file)
	f("", "REDIS_TLS=false", "REDIS_TLS_CACERT=/does/not/exist")
	f(`REDIS_TLS_CLIENT_CERT: is set, and REDIS_TLS_CLIENT_KEY is not`, "REDIS_TLS=true", "REDIS_TLS_CLIENT_CERT="+file)
	f(`REDIS_TLS_CLIENT_KEY: is set, and REDIS_TLS_CLIENT_CERT is not`, "REDIS_TLS=true", "REDIS_TLS_CLIENT_KEY="+file)
	f(`REDIS_TLS_CACERT: opening "/does/not/exist": no such file or directory`, "REDIS_TLS=true", "REDIS_TLS_CACERT=/does/not/exist")
	f(`REDIS_TLS_CACERT: is set, and neither is REDIS_TLS nor a rediss:// address`, "REDIS_TLS_CACERT="+file)
}

// FuzzRedisURL: a password of any bytes arrives as it is when escaped, and no error
// shows one.
func FuzzRedisURL(f *testing.F) {
	f.Add("hunter2", "h:1", "SINGLE")
	f.Add("p@ss://w/o?r#d,", "a:1,b:x", "CLUSTER")
	f.Add("%", "main,::", "SENTINEL")
	f.Fuzz(func(t *testing.T, password, hosts, kind string) {
		password = "<" + strings.Map(func(r rune) rune {
			if r <= ' ' || r == 0x7f {
				return '_'
			}
			return r
		}, strings.ToValidUTF8(password, "_")) + ">"
		if strings.Contains(hosts, "<") {
			return // then it is the hosts that may hold the text, and rightly
		}
		escaped := strings.ReplaceAll(password, "%", "%25")
		s, _, err := config.Parse(nil, env("REDIS_URL=redis://:"+escaped+"@"+hosts, "REDIS_TYPE="+kind))
		switch {
		case err != nil && (strings.Contains(err.Error(), password) || strings.Contains(err.Error(), escaped)):
			t.Errorf("the password %q is shown: %v", password, err)
		case err == nil && strings.Contains(s.String(), password):
			t.Errorf("the password %q is shown: %v", password, s)
		case err == nil && !strings.Contains(hosts, "@") && string(s.Redis.Password) != password:
			t.Errorf("password %q came out as %q", password, string(s.Redis.Password))
		}
	})
}
