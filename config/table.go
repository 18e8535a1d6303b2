package config

import (
	"strings"
	"time"
)

// A row is one setting: its names, what it may be, and where its text goes.
type row struct {
	// env is the name in the environment; empty for a flag alone.
	env string
	// name is the flag; empty in the table means env in lower case with dashes.
	name string
	// def is the default, read like a given text; empty leaves the zero value.
	def string
	// help says what the setting does, for -h and docs/settings.md.
	help  string
	value value
	// show is the form in which a given text may be shown; nil shows it as it is.
	show func(text string) string
}

// id names the row for those who ask whether it was given.
func (r *row) id() string {
	if r.env != "" {
		return r.env
	}
	return r.flag()
}

// flag is the row's name on the command line, without the dash.
func (r *row) flag() string {
	if r.name != "" {
		return r.name
	}
	return strings.ReplaceAll(strings.ToLower(r.env), "_", "-")
}

// shown is a text of the row in the form in which errors and logs may have it.
func (r *row) shown(text string) string {
	if r.show != nil {
		return r.show(text)
	}
	return text
}

// hide is the show of a secret.
func hide(string) string { return masked }

// A group is a part of the table under one title.
type group struct {
	title string
	rows  []row
}

// table is every setting, in the order in which -h and the docs have them. Its values
// write to p.
func (p *parser) table() []group {
	return []group{
		{"Rules", p.ruleRows()},
		{"Listeners", p.listenerRows()},
		{"TLS on the gRPC port", p.serverTLSRows()},
		{"Logs and metrics", p.watchingRows()},
		{"Answers", p.answerRows()},
		{"Buckets", p.bucketRows()},
		{"Redis", p.redisRows()},
		{"A second Redis", p.perSecondRows()},
	}
}

func (p *parser) ruleRows() []row {
	s := &p.s
	return []row{
		{
			name: "rules", value: text(&s.Rules),
			help: "Folder or file to read rules from. It takes the place of the RUNTIME settings",
		},
		{
			env: "RUNTIME_ROOT", def: "/srv/runtime_data/current", value: text(&s.RuntimeRoot),
			help: "Rules are in the folder RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY. It may be a link, and a swap of the link is seen",
		},
		{
			env: "RUNTIME_SUBDIRECTORY", value: text(&s.RuntimeSubdirectory),
			help: "Folder below RUNTIME_ROOT",
		},
		{
			env: "RUNTIME_APPDIRECTORY", def: "config", value: text(&s.RuntimeAppDirectory),
			help: "Folder below RUNTIME_SUBDIRECTORY",
		},
		{
			env: "RUNTIME_WATCH_ROOT", def: "true", value: boolean(&s.RuntimeWatchRoot),
			help: "Edits in the folder and swaps of links to it are both seen, whatever this says. If it is true and RUNTIME_SUBDIRECTORY is set, files beside the folder whose names begin with its name and a dot are read too (config.edge.yaml beside config)",
		},
		{
			env: "RUNTIME_IGNOREDOTFILES", def: "false", value: boolean(&s.RuntimeIgnoreDotFiles),
			help: "Entries that begin with a dot are never read, whatever this says",
		},
		{
			env: "CONFIG_TYPE", def: "FILE",
			value: except(choice(&s.ConfigType, "FILE"), "GRPC_XDS_SOTW", "is not there yet: rules come from files, which FILE says"),
			help:  "Where rules come from",
		},
		{
			env: "MERGE_DOMAIN_CONFIG", def: "false", value: boolean(&s.MergeDomainConfig),
			help: "Allow one domain in several files",
		},
	}
}

func (p *parser) listenerRows() []row {
	s := &p.s
	return []row{
		{env: "HOST", def: "0.0.0.0", value: host(&s.Host), help: "Address of the HTTP listener (health, /json, /metrics); :: is IPv6 and IPv4"},
		{env: "PORT", def: "8080", value: port(&s.Port), help: "Port of the HTTP listener; 0 takes a free port, here and below"},
		{env: "GRPC_HOST", def: "0.0.0.0", value: host(&s.GRPCHost), help: "Address of the rate limit service"},
		{env: "GRPC_PORT", def: "8081", value: port(&s.GRPCPort), help: "Port of the rate limit service"},
		{env: "GRPC_UDS", value: text(&s.GRPCUDS), help: "Path of a unix socket for the rate limit service, in place of GRPC_HOST and GRPC_PORT"},
		{env: "DEBUG_HOST", def: "127.0.0.1", value: host(&s.DebugHost), help: "Address of the debug pages, which have no password: this machine only, unless told otherwise"},
		{env: "DEBUG_PORT", def: "6070", value: port(&s.DebugPort), help: "Port of the debug pages"},
		{env: "GRPC_ENGINE", def: "lean", value: choice(&s.GRPCEngine, "grpc-go", "lean"), help: "What serves the rate limit service: grpc-go, or an HTTP/2 server of our own that spends a fraction of its time on a call"},
		{env: "GRPC_MAX_CONNECTION_AGE", def: "24h", value: duration(&s.GRPCMaxConnectionAge, 0), help: "Age at which a connection is told to go away, so that clients spread over new instances; 0 is never"},
		{env: "GRPC_MAX_CONNECTION_AGE_GRACE", def: "1h", value: duration(&s.GRPCMaxConnectionAgeGrace, 0), help: "Time that calls on such a connection may still take; 0 is no bound"},
		{env: "DRAIN_DELAY", def: "2s", value: duration(&s.DrainDelay, 0), help: "Time from SIGTERM, when health turns to not serving, until listeners close. Less than SHUTDOWN_TIMEOUT, or the process does not start"},
		{env: "SHUTDOWN_TIMEOUT", def: "8s", value: duration(&s.ShutdownTimeout, 0), help: "Most time from SIGTERM to the end, DRAIN_DELAY included; the calls in flight have the rest"},
	}
}

func (p *parser) watchingRows() []row {
	s := &p.s
	return []row{
		{env: "LOG_LEVEL", def: "info", value: level(&s.LogLevel), help: "Least level that is logged; trace is debug, fatal and panic are error"},
		{env: "LOG_FORMAT", def: "text", value: choice(&s.LogFormat, "text", "json"), help: "Form of the log"},
		{env: "USE_PROMETHEUS", def: "false", value: boolean(&p.usePrometheus), help: "Serve metrics on PROMETHEUS_ADDR too; they are on PORT in any case"},
		{env: "PROMETHEUS_ADDR", def: ":9090", value: address(&s.PrometheusAddr), help: "Address of that listener. Setting it opens the listener, unless USE_PROMETHEUS says false"},
		{env: "PROMETHEUS_PATH", def: "/metrics", value: urlPath(&s.PrometheusPath), help: "Path of the metrics on that listener"},
	}
}

func (p *parser) answerRows() []row {
	s := &p.s
	return []row{
		{env: "LIMIT_RESPONSE_HEADERS_ENABLED", def: "false", value: boolean(&s.LimitResponseHeadersEnabled), help: "Add the three headers below to answers"},
		{env: "LIMIT_LIMIT_HEADER", def: "RateLimit-Limit", value: header(&s.LimitHeader), help: "Header with the limit"},
		{env: "LIMIT_REMAINING_HEADER", def: "RateLimit-Remaining", value: header(&s.RemainingHeader), help: "Header with the whole tokens left"},
		{env: "LIMIT_RESET_HEADER", def: "RateLimit-Reset", value: header(&s.ResetHeader), help: "Header with the seconds until the reset"},
		{env: "SHADOW_MODE", def: "false", value: boolean(&s.ShadowMode), help: "Count and report, but answer OK to every call"},
		{env: "QUOTA_MODE", def: "false", value: boolean(&s.QuotaMode), help: "Treat every rule as if it had quota_mode"},
		{env: "RESPONSE_DYNAMIC_METADATA", def: "false", value: boolean(&s.ResponseDynamicMetadata), help: "Answer with the descriptors and the rules' metadata as dynamic metadata"},
		{env: "SWITCHES_FILE", value: text(&s.SwitchesFile), help: "File of switches that act at once when it is edited: mode (enforce, shadow, allow, deny), on_failure (local, allow, deny), log_level (debug, info, warn, error), a line each as in mode: shadow"},
		{env: "NEAR_LIMIT_RATIO", def: "0.8", value: share(&s.NearLimitRatio), help: "Used share of a limit from which it counts as near"},
	}
}

func (p *parser) bucketRows() []row {
	s := &p.s
	return []row{
		{
			env: "DEFAULT_ALGORITHM", def: "token_bucket",
			value: choice(&s.DefaultAlgorithm, "token_bucket", "fixed_window", "sliding_window", "sliding_log", "leaky_bucket"),
			help:  "Algorithm of rules that name none",
		},
		{
			env: "PREFETCH", def: "auto", value: switched(&s.Prefetch, "auto", "off"),
			help: "With Redis: auto decides calls on hot keys from tokens that are fetched ahead, for rules that do not say prefetch: off; off asks Redis each time",
		},
		{
			env: "PREFETCH_FRACTION", def: "0.15", value: between(&s.PrefetchFraction, 0.01, 0.3),
			help: "Part of a bucket's tokens that all instances may hold ahead: more means fewer calls to Redis and less room for bursts",
		},
		{
			env: "PREFETCH_SCARCITY", def: "0.05", value: between(&s.PrefetchScarcity, 0.02, 0.1),
			help: "Part of the time to full, at most 100 ms, for which an instance stays away from an empty bucket, or of a window, at most a second: more means fewer calls to Redis above the limit",
		},
		{
			env: "ON_FAILURE", def: "local", value: choice(&s.OnFailure, "local", "allow", "deny"),
			help: "What rules that do not say it do while Redis is away",
		},
		{
			env: "FAILURE_MODE", def: "rule", value: choice(&s.FailureMode, "rule", "error"),
			help: "What a call gets that Redis does not decide: rule answers by on_failure of each rule, error answers UNAVAILABLE, so that Envoy's failure_mode_deny decides",
		},
		{
			env: "INSTANCES", def: "0", value: integer(&s.Instances, 0, 100000),
			help: "Number of instances that share the limits, for their parts while Redis is away; 0 counts those that Redis has heard of",
		},
		{
			env: "BACKEND_TYPE", def: "redis",
			value: except(choice(&p.backend, "redis"), "memcache", "is not built in: buckets are in Redis, or in the process if no Redis is set"),
			help:  "Store of the buckets",
		},
		{
			env: "CACHE_KEY_PREFIX", value: prefix(&s.CacheKeyPrefix),
			help: "Goes before the key of every bucket, so that services can share a Redis",
		},
		{
			env: "HASH_KEYS", def: "false", value: boolean(&s.HashKeys),
			help: "Keep the values of requests out of the store's keys: a hash stands for them",
		},
		{
			env: "HASH_SECRET", value: text(&s.HashSecret), show: hide,
			help: "Secret of that hash, the same on all instances",
		},
	}
}

func (p *parser) redisRows() []row {
	s, r := &p.s, &p.s.Redis
	return []row{
		{
			env: "REDIS_URL", value: text(&p.redis.url), show: maskURL,
			help: "host:port, the path of a unix socket, or redis://user:password@host:port/0 (rediss:// for TLS). For CLUSTER a list of nodes (a:6379,b:6379), for SENTINEL the master's name and the sentinels (main,a:26379,b:26379). Without any of REDIS_URL, REDIS_TYPE, REDIS_SOCKET_TYPE, REDIS_AUTH, REDIS_TLS and BACKEND_TYPE buckets are kept in the process",
		},
		{env: "REDIS_TYPE", def: Single, value: choice(&r.Type, Single, Sentinel, Cluster), help: "How Redis is run"},
		{env: "REDIS_SOCKET_TYPE", value: choice(&p.redis.socketType, "tcp", "unix"), help: "Kind of the address; if not set, a path is unix and anything else tcp"},
		{env: "REDIS_AUTH", value: text(&p.redis.auth), show: hide, help: "password or user:password; goes before what REDIS_URL says"},
		{env: "REDIS_SENTINEL_AUTH", value: text(&p.redis.sentinel), show: hide, help: "The same for the sentinels, which get no other"},
		{env: "REDIS_TLS", def: "false", value: boolean(&r.TLS), help: "Encrypt connections; an address that begins with rediss:// does so too"},
		{env: "REDIS_TLS_CACERT", value: text(&r.CACert), help: "File of authorities to trust beside the system's"},
		{env: "REDIS_TLS_CLIENT_CERT", value: text(&r.ClientCert), help: "File of our own certificate"},
		{env: "REDIS_TLS_CLIENT_KEY", value: text(&r.ClientKey), help: "File of its key"},
		{env: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", def: "false", value: boolean(&r.SkipHostnameVerification), help: "Trust a certificate of any name, if its chain is good"},
		{env: "REDIS_POOL_SIZE", def: "10", value: integer(&r.PoolSize, 0, 10000), help: "Most connections to one server; 0 is the default"},
		{env: "REDIS_TIMEOUT", def: "10s", value: duration(&r.DialTimeout, 0), help: "Most time for making a connection; 0 is the default"},
		{env: "REDIS_BUDGET", def: "5ms", value: duration(&r.Budget, 100*time.Microsecond), help: "Most time that a call waits for Redis; then ON_FAILURE decides"},
		{env: "REDIS_SLOW", def: "0", value: duration(&r.Slow, 0), help: "Time from which on an answer counts as a failure of Redis; 0 is the budget"},
		{env: "REDIS_MAX_IN_FLIGHT", def: "1000", value: integer(&r.MaxInFlight, 1, 100000), help: "Most commands on their way to Redis at once; of a call beyond that ON_FAILURE decides at once"},
		{env: "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", def: "false", value: boolean(&r.HealthCheck), help: "Let /healthcheck and gRPC health fail while Redis does not answer"},
		{env: "START", def: "wait", value: choice(&p.start, "wait", "fail-fast"), help: "What to do while Redis has never been reached: wait answers by ON_FAILURE, with /readyz at 503; fail-fast ends the process with exit code 1 after START_TIMEOUT"},
		{env: "START_TIMEOUT", def: "30s", value: duration(&s.StartTimeout, time.Millisecond), help: "Time that START=fail-fast gives Redis"},
	}
}
