package config

import (
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
)

// Settings is everything that the process is told by flags and environment. [Parse]
// makes it; after that it does not change. It is safe to print: secrets are masked.
type Settings struct {
	// Rules is the folder or file named by the flag -rules, else empty. RulesPath says
	// where the rules are, whichever way that was set.
	Rules string
	// RuntimeRoot, RuntimeSubdirectory and RuntimeAppDirectory joined are the rules
	// folder where Rules is empty.
	RuntimeRoot, RuntimeSubdirectory, RuntimeAppDirectory string
	// RuntimeWatchRoot asks for the reference's way of watching. Both ways of it are
	// always watched here; what is left of the setting is in FolderOptions.
	RuntimeWatchRoot bool
	// RuntimeIgnoreDotFiles changes nothing: dot entries are never read.
	RuntimeIgnoreDotFiles bool
	// MergeDomainConfig allows one domain in several files.
	MergeDomainConfig bool
	// ConfigType is FILE.
	ConfigType string

	// Host and Port are where HTTP listens: health, /json, /metrics. Port 0 takes a free
	// one; so do the other ports.
	Host string
	Port int
	// GRPCHost and GRPCPort are where the rate limit service listens, unless GRPCUDS is
	// set. GRPCListen has them in the form that net.Listen wants.
	GRPCHost string
	GRPCPort int
	// DebugHost and DebugPort are where the debug pages listen.
	DebugHost string
	DebugPort int
	// GRPCUDS is a unix socket's path in place of GRPCHost and GRPCPort, or empty.
	GRPCUDS string
	// GRPCEngine is what serves it: grpc-go or lean.
	GRPCEngine string
	// GRPCTLS is TLS at that address.
	GRPCTLS ServerTLS
	// GRPCMaxConnectionAge is the age at which a gRPC connection is told to go away,
	// and GRPCMaxConnectionAgeGrace how long its calls may still take. 0: never.
	GRPCMaxConnectionAge, GRPCMaxConnectionAgeGrace time.Duration
	// DrainDelay is the time from SIGTERM, when health turns to not serving, until the
	// listeners close.
	DrainDelay time.Duration
	// ShutdownTimeout bounds the time from SIGTERM to the exit, DrainDelay included.
	ShutdownTimeout time.Duration

	// LogLevel is the least level that is written.
	LogLevel slog.Level
	// LogFormat is text or json.
	LogFormat string
	// PrometheusAddr (host:port) and PrometheusPath are where metrics are served beside
	// /metrics on Port; both are empty without such a listener.
	PrometheusAddr, PrometheusPath string

	// Redis is how to reach Redis; it has no address where buckets are kept in the
	// process (see Embedded).
	Redis Redis
	// PerSecond is a second Redis for the limits by the second; it has no address if there is
	// none.
	PerSecond Redis
	// CacheKeyPrefix goes before the key of every bucket. It holds no braces.
	CacheKeyPrefix string
	// HashKeys keeps the values of requests out of the store's keys, and HashSecret (the
	// same on all instances) keys the hash that stands for them.
	HashKeys   bool
	HashSecret Secret
	// OnFailure is what rules do that do not say it themselves while Redis is away:
	// local, allow or deny.
	OnFailure string
	// FailureMode is rule, which answers by the rules' own choice while Redis is away, or
	// error, which answers UNAVAILABLE.
	FailureMode string
	// Instances is the number of instances that share the limits; 0 counts them in Redis.
	Instances int
	// FailFast ends the process if Redis has not been reached StartTimeout after the start.
	FailFast     bool
	StartTimeout time.Duration

	// Prefetch lets hot keys be decided from tokens that are fetched ahead, with Redis.
	// PrefetchFraction is the part of a bucket that all instances may hold of it, and
	// PrefetchScarcity the part of the time to full for which an instance stays away from an
	// empty bucket.
	Prefetch                           bool
	PrefetchFraction, PrefetchScarcity float64

	// DefaultAlgorithm is the algorithm of rules that name none: token_bucket,
	// fixed_window, sliding_window, sliding_log or leaky_bucket.
	DefaultAlgorithm string
	// SwitchesFile is a file of what can be changed while the process runs, or empty.
	SwitchesFile string
	// NearLimitRatio is the used share of a limit, 0 to 1, from which it counts as near.
	NearLimitRatio float64
	// ShadowMode answers OK to every call, and counts what it would have answered.
	ShadowMode bool
	// QuotaMode treats every rule as a quota rule.
	QuotaMode bool
	// ResponseDynamicMetadata answers with the request and the rules' metadata.
	ResponseDynamicMetadata bool
	// LimitResponseHeadersEnabled adds the three headers below to answers. They are
	// valid header names, different from each other, spelled as given.
	LimitResponseHeadersEnabled               bool
	LimitHeader, RemainingHeader, ResetHeader string

	rulesPath string
	examples  bool
	beside    bool
	given     []given
}

// given is a setting that was given, in the form in which it may be shown.
type given struct{ name, shown string }

// HTTPAddr is the host:port of the HTTP listener.
func (s Settings) HTTPAddr() string { return join(s.Host, s.Port) }

// DebugAddr is the host:port of the debug listener.
func (s Settings) DebugAddr() string { return join(s.DebugHost, s.DebugPort) }

// GRPCListen is where the rate limit service listens, as net.Listen takes it: "tcp" and
// a host:port, or "unix" and a path.
func (s Settings) GRPCListen() (network, address string) {
	if s.GRPCUDS != "" {
		return "unix", s.GRPCUDS
	}
	return "tcp", join(s.GRPCHost, s.GRPCPort)
}

// RulesPath is the folder or file to read rules from. With examples true nobody has
// said where rules are, so the built-in examples are to be used and the path is empty.
func (s Settings) RulesPath() (path string, examples bool) { return s.rulesPath, s.examples }

// FolderOptions are the options with which to open RulesPath.
func (s Settings) FolderOptions() FolderOptions { return FolderOptions{Beside: s.beside} }

// Embedded reports whether buckets are kept in this process: no Redis is configured.
func (s Settings) Embedded() bool { return len(s.Redis.Addresses) == 0 }

// String lists the settings that were given as NAME=value, in the order of
// docs/settings.md, with secrets masked. All others have their defaults.
func (s Settings) String() string {
	parts := make([]string, len(s.given))
	for i, g := range s.given {
		parts[i] = g.name + "=" + strconv.Quote(g.shown)
	}
	return strings.Join(parts, " ")
}

// GoString is String: the verb %#v masks secrets too.
func (s Settings) GoString() string { return "config.Settings{" + s.String() + "}" }

// LogValue is a group of the settings that were given, secrets masked.
func (s Settings) LogValue() slog.Value {
	attrs := make([]slog.Attr, len(s.given))
	for i, g := range s.given {
		attrs[i] = slog.String(g.name, g.shown)
	}
	return slog.GroupValue(attrs...)
}

// join is net.JoinHostPort for a host that may be written in brackets.
func join(host string, port int) string {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return net.JoinHostPort(host, strconv.Itoa(port))
}
