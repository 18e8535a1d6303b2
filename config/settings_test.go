package config_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-rls/sluice/config"
)

// env is a lookup over NAME=value words.
func env(words ...string) func(string) (string, bool) {
	m := map[string]string{}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		m[name] = value
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

// parse wants no error.
func parse(t *testing.T, args []string, words ...string) config.Settings {
	t.Helper()
	s, _, err := config.Parse(args, env(words...))
	if err != nil {
		t.Fatalf("Parse(%q, %q): %v", args, words, err)
	}
	return s
}

func TestDefaults(t *testing.T) {
	s, warnings, err := config.Parse(nil, env())
	if err != nil || warnings != nil {
		t.Fatalf("Parse(nothing): warnings %q, error %v", warnings, err)
	}
	want := config.Settings{
		RuntimeRoot: "/srv/runtime_data/current", RuntimeAppDirectory: "config", RuntimeWatchRoot: true,
		ConfigType: "FILE",
		Host:       "0.0.0.0", Port: 8080,
		GRPCHost: "0.0.0.0", GRPCPort: 8081,
		DebugHost: "127.0.0.1", DebugPort: 6070,
		GRPCEngine: "lean", GRPCMaxConnectionAge: 24 * time.Hour, GRPCMaxConnectionAgeGrace: time.Hour,
		DrainDelay: 2 * time.Second, ShutdownTimeout: 8 * time.Second,
		LogLevel: slog.LevelInfo, LogFormat: "text",
		Redis:       config.Redis{Type: config.Single, PoolSize: 10, DialTimeout: 10 * time.Second, Budget: 5 * time.Millisecond, MaxInFlight: 1000},
		OnFailure:   "local",
		FailureMode: "rule", StartTimeout: 30 * time.Second,
		Prefetch: true, PrefetchFraction: 0.15, PrefetchScarcity: 0.05,
		NearLimitRatio: 0.8, DefaultAlgorithm: "token_bucket",
		LimitHeader: "RateLimit-Limit", RemainingHeader: "RateLimit-Remaining", ResetHeader: "RateLimit-Reset",
	}
	if diff := cmp.Diff(want, s, cmpopts.IgnoreUnexported(config.Settings{})); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if !s.Embedded() {
		t.Error("Embedded() = false without any setting of Redis")
	}
	if path, examples := s.RulesPath(); path != "" || !examples {
		t.Errorf("RulesPath() = %q, %v, want the examples", path, examples)
	}
}

func TestOrderOfSources(t *testing.T) {
	f := func(want int, args []string, words ...string) {
		t.Helper()
		if s := parse(t, args, words...); s.Port != want {
			t.Errorf("Parse(%q, %q).Port = %d, want %d", args, words, s.Port, want)
		}
	}
	f(8080, nil)
	f(9000, nil, "PORT=9000")
	f(9000, nil, "PORT= 9000\n")
	f(9001, []string{"-port", "9001"}, "PORT=9000")
	f(9001, []string{"--port=9001"}, "PORT=bad")
	f(9002, []string{"-port=9001", "-port=9002"})
	f(8080, nil, "PORT=")
	f(9000, []string{"-port="}, "PORT=9000")
}

func TestTrueOrFalse(t *testing.T) {
	f := func(want bool, args []string, words ...string) {
		t.Helper()
		if s := parse(t, args, words...); s.ShadowMode != want {
			t.Errorf("Parse(%q, %q).ShadowMode = %v, want %v", args, words, s.ShadowMode, want)
		}
	}
	f(true, []string{"-shadow-mode"})
	f(false, []string{"-shadow-mode=false"}, "SHADOW_MODE=true")
	f(true, nil, "SHADOW_MODE=1")
	f(true, nil, "SHADOW_MODE=T")
	f(false, nil, "SHADOW_MODE=FALSE")
	f(false, nil, "SHADOW_MODE=")
}

func TestValues(t *testing.T) {
	s := parse(t, nil, "LOG_LEVEL=WARN", "LOG_FORMAT=JSON", "DRAIN_DELAY=0", "GRPC_MAX_CONNECTION_AGE=90m",
		"NEAR_LIMIT_RATIO=1", "DEFAULT_ALGORITHM=Sliding_Log", "ON_FAILURE=deny", "HASH_SECRET=a b", "HASH_KEYS=true",
		"LIMIT_RESET_HEADER=X-Reset", "CACHE_KEY_PREFIX=shop:", "CONFIG_TYPE=FILE", "REDIS_URL=r:1", "REDIS_BUDGET=1m",
		"RUNTIME_ROOT="+t.TempDir(), "RUNTIME_APPDIRECTORY=.")
	got := []any{
		s.LogLevel, s.LogFormat, s.DrainDelay, s.GRPCMaxConnectionAge, s.NearLimitRatio, s.DefaultAlgorithm,
		s.OnFailure, string(s.HashSecret), s.HashKeys, s.ResetHeader, s.CacheKeyPrefix, s.Redis.Budget,
	}
	want := []any{
		slog.LevelWarn, "json", time.Duration(0), 90 * time.Minute, 1.0, "sliding_log",
		"deny", "a b", true, "X-Reset", "shop:", time.Minute,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

// R110: level and format of the log are settings.
func TestLogLevels(t *testing.T) {
	for text, want := range map[string]slog.Level{
		"trace": slog.LevelDebug, "debug": slog.LevelDebug, "Info": slog.LevelInfo, "warn": slog.LevelWarn,
		"warning": slog.LevelWarn, "ERROR": slog.LevelError, "fatal": slog.LevelError, "panic": slog.LevelError,
	} {
		if s := parse(t, nil, "LOG_LEVEL="+text); s.LogLevel != want {
			t.Errorf("LOG_LEVEL=%s: level %v, want %v", text, s.LogLevel, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	s := parse(t, nil, "HOST=::", "GRPC_HOST=[::1]", "DEBUG_HOST=localhost", "PORT=1", "GRPC_PORT=2", "DEBUG_PORT=0")
	network, address := s.GRPCListen()
	got := []string{s.HTTPAddr(), network, address, s.DebugAddr()}
	if diff := cmp.Diff([]string{"[::]:1", "tcp", "[::1]:2", "localhost:0"}, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	s = parse(t, nil, "GRPC_UDS=/run/sluice.sock", "GRPC_PORT=2")
	if network, address := s.GRPCListen(); network != "unix" || address != "/run/sluice.sock" {
		t.Errorf("GRPCListen() = %q, %q, want the socket", network, address)
	}
}

func TestMetricsListener(t *testing.T) {
	f := func(addr, path string, words ...string) {
		t.Helper()
		s := parse(t, nil, words...)
		if s.PrometheusAddr != addr || s.PrometheusPath != path {
			t.Errorf("Parse(%q): metrics on %q %q, want %q %q", words, s.PrometheusAddr, s.PrometheusPath, addr, path)
		}
	}
	f("", "")
	f("", "", "PROMETHEUS_PATH=/m")
	f(":9090", "/metrics", "USE_PROMETHEUS=true")
	f(":19001", "/metrics", "PROMETHEUS_ADDR=:19001")
	f("[::1]:1", "/m", "PROMETHEUS_ADDR=[::1]:1", "PROMETHEUS_PATH=/m", "USE_PROMETHEUS=true")
	f("", "", "PROMETHEUS_ADDR=:19001", "USE_PROMETHEUS=false")
}

func TestMistakes(t *testing.T) {
	f := func(want string, args []string, words ...string) {
		t.Helper()
		_, _, err := config.Parse(args, env(words...))
		if err == nil || err.Error() != want {
			t.Errorf("Parse(%q, %q):\n got %v\nwant %s", args, words, err, want)
		}
	}
	f(`PORT: "99999" is not a whole number from 0 to 65535`, nil, "PORT=99999")
	f(`GRPC_PORT: "tcp://10.0.0.1:80" is not a whole number from 0 to 65535: Kubernetes sets it so for a service of that name (enableServiceLinks)`,
		nil, "GRPC_PORT=tcp://10.0.0.1:80")
	f(`-grpc-port: "-1" is not a whole number from 0 to 65535`, []string{"-grpc-port", "-1"})
	f(`SHADOW_MODE: "yes" is not true or false`, nil, "SHADOW_MODE=yes")
	f(`DRAIN_DELAY: "5" has no unit: write 5s or 5ms`, nil, "DRAIN_DELAY=5")
	f(`DRAIN_DELAY: "1d" is not a duration of at least 0s, such as 5ms, 10s or 24h`, nil, "DRAIN_DELAY=1d")
	f(`DRAIN_DELAY: "-1s" is below 0s`, nil, "DRAIN_DELAY=-1s")
	f(`DRAIN_DELAY: 8s is not below SHUTDOWN_TIMEOUT, 8s: the calls in flight have the difference`, nil, "DRAIN_DELAY=8s")
	f(`-drain-delay: 3s is not below SHUTDOWN_TIMEOUT, 1s: the calls in flight have the difference`,
		[]string{"-drain-delay=3s"}, "SHUTDOWN_TIMEOUT=1s")
	f(`-shutdown-timeout: 1s is not above DRAIN_DELAY, 2s: the calls in flight have the difference`, []string{"-shutdown-timeout=1s"})
	f(`REDIS_BUDGET: "0" is below 100µs`, nil, "REDIS_BUDGET=0")
	f(`NEAR_LIMIT_RATIO: "NaN" is not a number from 0 to 1`, nil, "NEAR_LIMIT_RATIO=NaN")
	f(`NEAR_LIMIT_RATIO: "80" is not a number from 0 to 1`, nil, "NEAR_LIMIT_RATIO=80")
	f(`LOG_LEVEL: "loud" is not debug, info, warn or error`, nil, "LOG_LEVEL=loud")
	f(`LOG_FORMAT: "xml" is not text or json`, nil, "LOG_FORMAT=xml")
	f(`ON_FAILURE: "open" is not local, allow or deny`, nil, "ON_FAILURE=open")
	f(`HOST: "0.0.0.0:8080" is not a host name or an IP address: the port is a setting of its own`, nil, "HOST=0.0.0.0:8080")
	f(`HOST: "a b" is not a host name or an IP address`, nil, "HOST=a b")
	f(`PROMETHEUS_ADDR: "9090" is not host:port or :port`, nil, "PROMETHEUS_ADDR=9090")
	f(`PROMETHEUS_PATH: "metrics" is not a path that begins with /`, nil, "PROMETHEUS_PATH=metrics")
	f(`BACKEND_TYPE: "memcache" is not built in: buckets are in Redis, or in the process if no Redis is set`,
		nil, "BACKEND_TYPE=memcache", "REDIS_URL=r:1")
	f(`CACHE_KEY_PREFIX: "{a}" is not text without { and }`, nil, "CACHE_KEY_PREFIX={a}")
	f(`LIMIT_LIMIT_HEADER: "a b" is not a header name (letters, digits and !#$%&'*+-.^_`+"`"+`|~)`, nil, "LIMIT_LIMIT_HEADER=a b")
	f(`LIMIT_LIMIT_HEADER: "Transfer-Encoding" is a header with a meaning of its own in HTTP; choose another name`,
		nil, "LIMIT_LIMIT_HEADER=Transfer-Encoding")
	f(`LIMIT_RESET_HEADER: "ratelimit-limit" is the header of LIMIT_LIMIT_HEADER too`, nil, "LIMIT_RESET_HEADER=ratelimit-limit")
	f(`-redis-ulr: there is no such flag, the nearest is -redis-url`, []string{"-redis-ulr", "x", "-port=1"})
	f(`-port: flag needs an argument: -port`, []string{"-port"})
	f(`argument "false": only flags are taken, and true or false is given to one as -flag=false`, []string{"-shadow-mode", "false"})
	f(`GRPC_UDS: "/a\n" holds a control character, such as a newline at its end`, nil, "GRPC_UDS=/a\n")
}

// TestHeaderNames: a header that would break the answer it stands in is refused, in any
// letter case.
func TestHeaderNames(t *testing.T) {
	for _, name := range []string{
		"Connection", "content-length", "HOST", "Keep-Alive", "TE", "Trailer", "Upgrade", "Proxy-Connection",
		"Content-Type", "Retry-After", ":status", "X\r\nY", "é", "a:b",
	} {
		if _, _, err := config.Parse([]string{"-limit-remaining-header", name}, env()); err == nil {
			t.Errorf("header %q was accepted", name)
		}
	}
}

func TestXDSIsRefused(t *testing.T) {
	_, _, err := config.Parse(nil, env("CONFIG_TYPE=GRPC_XDS_SOTW", "RUNTIME_ROOT="+t.TempDir(), "RUNTIME_APPDIRECTORY=."))
	const want = `CONFIG_TYPE: "GRPC_XDS_SOTW" is not there yet: rules come from files, which FILE says`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, _, err := config.Parse([]string{"-nope", "-drain-delay=x", "-nada=1"},
		env("PORT=x", "REDIS_TYPE=SINGLE", "LOG_LEVEL=x", "RUNTIME_ROOT=/does/not/exist"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"-nope", "-nada", "-drain-delay", "PORT", "LOG_LEVEL", "REDIS_TYPE", "REDIS_URL", "/does/not/exist"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not mention %s:\n%v", want, err)
		}
	}
	if n := len(strings.Split(err.Error(), "\n")); n != 7 {
		t.Errorf("%d lines for 7 mistakes:\n%v", n, err)
	}
}

func TestHelp(t *testing.T) {
	for _, arg := range []string{"-h", "--help"} {
		if _, _, err := config.Parse([]string{"-port=1", arg, "-nope"}, env("PORT=x")); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("Parse(%s): error %v, want flag.ErrHelp", arg, err)
		}
	}
}

func TestUsage(t *testing.T) {
	var out strings.Builder
	config.Usage(&out)
	for _, want := range []string{
		"  -rules text\n", "\nRedis:\n",
		"  -near-limit-ratio [NEAR_LIMIT_RATIO] a number from 0 to 1, default 0.8\n        Used share of a limit",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("usage lacks %q:\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "        ") && len(line) > 89 {
			t.Errorf("%d letters in %q", len(line), line)
		}
	}
}

func TestWarning(t *testing.T) {
	_, warnings, err := config.Parse(nil, env("USE_STATSD=false", "LOCAL_CACHE_SIZE_IN_BYTES=nonsense", "TRACING_ENABLED=",
		"REDIS_PORT=tcp://10.1.2.3:6379", "GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt"))
	want := []string{"accepted, without effect yet: GRPC_SERVER_TLS_CA_CERT, LOCAL_CACHE_SIZE_IN_BYTES, USE_STATSD"}
	if diff := cmp.Diff(want, warnings); diff != "" || err != nil {
		t.Errorf("warnings (-want +got), error %v:\n%s", err, diff)
	}
}

// TestSecretsAreMasked: whatever prints settings or their mistakes prints no password.
func TestSecretsAreMasked(t *testing.T) {
	const secret = "hunter2"
	args := []string{"-redis-sentinel-auth", "u:" + secret}
	good := []string{"REDIS_URL=redis://u:" + secret + "@h:1", "REDIS_AUTH=u:" + secret, "HASH_SECRET=" + secret}
	s := parse(t, args, good...)
	if s.Redis.Password != secret || s.HashSecret != secret || s.Redis.SentinelPassword != secret {
		t.Fatal("the secrets did not arrive, so the test proves nothing")
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("start", slog.Any("settings", s), slog.Any("redis", s.Redis), slog.Any("secret", s.HashSecret))
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	printed := []string{log.String(), string(encoded)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		printed = append(printed, fmt.Sprintf(verb, s), fmt.Sprintf(verb, &s), fmt.Sprintf(verb, s.Redis), fmt.Sprintf(verb, s.HashSecret))
	}
	for _, bad := range [][]string{
		{"REDIS_URL=redis://u:" + secret},
		{"REDIS_URL=redis://u:" + secret + "@h"},
		{"REDIS_URL=u:" + secret},
		{"REDIS_URL=redis://h:1?password=" + secret},
		{"REDIS_URL=redis://" + secret + "@h:x"},
		{"REDIS_URL=http://u:" + secret + "@h:1"},
		{"REDIS_URL=h:1,u:" + secret + ",x"},
		{"REDIS_URL=redis://:a%zz" + secret + "@h:1"},
		{"REDIS_URL=redis://:" + secret + "/#?@h:99999"},
		{"REDIS_URL=u:" + secret + "://x@h"},
		{"REDIS_URL=redis://u:" + secret + "@a:1,redis://u:" + secret + "@b:1"},
		{"REDIS_AUTH=" + secret},
		{"REDIS_AUTH=" + secret + "\n"},
		{"HASH_SECRET=" + secret + "\x00"},
	} {
		_, _, err := config.Parse(nil, env(append(bad, "PORT=x")...))
		printed = append(printed, err.Error())
	}
	for _, text := range printed {
		if strings.Contains(text, secret) {
			t.Errorf("a secret is shown: %s", text)
		}
	}
}

func TestSettingsString(t *testing.T) {
	s := parse(t, []string{"-port=9000"}, "HASH_SECRET=x", "REDIS_URL=redis://u:p@h:1/2")
	const want = `PORT="9000" HASH_SECRET="***" REDIS_URL="redis://***@h:1/2"`
	if got := s.String(); got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
}

func TestRulesPath(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "shop", "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "one.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f := func(want string, args []string, words ...string) {
		t.Helper()
		s := parse(t, args, words...)
		if path, examples := s.RulesPath(); path != want || examples {
			t.Errorf("Parse(%q, %q).RulesPath() = %q, %v, want %q", args, words, path, examples, want)
		}
	}
	f(root+"/shop/config", nil, "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=shop")
	f(root+"/shop", nil, "RUNTIME_ROOT="+root, "RUNTIME_APPDIRECTORY=shop")
	f(root+"/shop/config", []string{"-runtime-root", root, "-runtime-subdirectory=shop"}, "CONFIG_TYPE=FILE")
	f(root+"/one.yaml", []string{"-rules", root + "/one.yaml"}, "RUNTIME_ROOT=/does/not/exist")

	missing := func(want string, args []string, words ...string) {
		t.Helper()
		_, _, err := config.Parse(args, env(words...))
		if err == nil || err.Error() != want+": no such file or directory" {
			t.Errorf("Parse(%q, %q):\n got %v\nwant %s", args, words, err, want)
		}
	}
	missing(`RUNTIME_ROOT: reading rules "/srv/runtime_data/current/config"`, nil, "CONFIG_TYPE=FILE")
	missing(`RUNTIME_ROOT: reading rules "/srv/runtime_data/current/config"`, nil, "RUNTIME_IGNOREDOTFILES=true")
	missing(`RUNTIME_ROOT: reading rules "/srv/runtime_data/current/x/config"`, nil, "RUNTIME_SUBDIRECTORY=x")
	missing(`RUNTIME_SUBDIRECTORY: reading rules "`+root+`/nope/config"`, nil, "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=nope")
	missing(`RUNTIME_APPDIRECTORY: reading rules "`+root+`/shop/nope"`,
		nil, "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=shop", "RUNTIME_APPDIRECTORY=nope")
	missing(`-rules: reading rules "`+root+`/nope"`, []string{"-rules", root + "/nope"})
}

// TestFilesBesideTheFolder: only the reference's way of watching reads them.
func TestFilesBesideTheFolder(t *testing.T) {
	f := func(want bool, words ...string) {
		t.Helper()
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "shop", "config"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("shop/config", filepath.Join(root, "config")); err != nil {
			t.Fatal(err)
		}
		s := parse(t, nil, append(words, "RUNTIME_ROOT="+root)...)
		if got := s.FolderOptions().Beside; got != want {
			t.Errorf("Parse(%q).FolderOptions().Beside = %v, want %v", words, got, want)
		}
	}
	f(true, "RUNTIME_SUBDIRECTORY=shop")
	f(false, "RUNTIME_SUBDIRECTORY=shop", "RUNTIME_WATCH_ROOT=false")
	f(false)
}

func ExampleParse() {
	environment := map[string]string{
		"REDIS_URL":  "rediss://:s3cret@redis:6379",
		"GRPC_PORT":  "18081",
		"USE_STATSD": "false",
	}
	settings, warnings, err := config.Parse([]string{"-log-format", "json"}, func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	})
	fmt.Println(err, warnings)
	fmt.Println(settings)
	fmt.Println(settings.GRPCListen())
	fmt.Println(settings.Redis.Addresses, settings.Redis.TLS, settings.Redis.Password)
	// Output:
	// <nil> [accepted, without effect yet: USE_STATSD]
	// GRPC_PORT="18081" LOG_FORMAT="json" REDIS_URL="rediss://***@redis:6379"
	// tcp 0.0.0.0:18081
	// [redis:6379] true ***
}
