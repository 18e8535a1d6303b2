package config

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"
)

// The ways in which Redis is run, as Redis.Type has them.
const (
	Single   = "SINGLE"
	Sentinel = "SENTINEL"
	Cluster  = "CLUSTER"
)

// Redis is how to reach Redis.
type Redis struct {
	// Type is Single, Sentinel or Cluster.
	Type string
	// Network is tcp, or unix for a socket's path.
	Network string
	// Addresses are host:port, or one path if Network is unix: one server, the sentinels,
	// or some nodes of the cluster. Empty: no Redis is configured.
	Addresses []string
	// Master is the name that the sentinels know the master by; empty unless Sentinel.
	Master string
	// Username and Password are for the servers, SentinelUsername and SentinelPassword
	// for the sentinels. No user name: the default user. No password: no AUTH.
	Username, SentinelUsername string
	Password, SentinelPassword Secret
	// DB is the number of the database; 0 for a cluster.
	DB int
	// TLS encrypts the connections to servers and sentinels.
	TLS bool
	// CACert is a file of authorities to trust beside the system's, ClientCert and
	// ClientKey the files of our own certificate; empty if not wanted.
	CACert, ClientCert, ClientKey string
	// SkipHostnameVerification trusts a certificate of any name whose chain is good.
	SkipHostnameVerification bool
	// PoolSize is the most connections to one server.
	PoolSize int
	// DialTimeout bounds making a connection, Budget the wait of a call for Redis.
	DialTimeout, Budget time.Duration
	// Slow is the time from which on an answer counts against Redis; the budget if 0.
	Slow time.Duration
	// MaxInFlight bounds the commands in flight.
	MaxInFlight int
	// HealthCheck makes health depend on Redis.
	HealthCheck bool
}

// What a given 0 stands for: the reference takes it for its own default.
const (
	defaultPoolSize    = 10
	defaultDialTimeout = 10 * time.Second
)

// redisTexts are the settings of Redis that only make sense together.
type redisTexts struct {
	url, socketType string
	auth, sentinel  Secret
}

// redisSigns are the settings of which any one says that Redis is wanted. REDIS_PORT is
// none: Kubernetes sets it in every pod beside a service named redis.
var redisSigns = []string{
	"REDIS_URL", "REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_AUTH", "REDIS_TLS", "BACKEND_TYPE",
}

// resolveRedis makes one thing of the settings of Redis.
func (p *parser) resolveRedis() {
	if !p.has("REDIS_URL") {
		for _, sign := range redisSigns {
			if p.has(sign) {
				p.fail(sign, "is set, and REDIS_URL is not")
			}
		}
		return
	}
	if p.reach(&p.s.Redis, p.redis, "REDIS") {
		p.checkRedisTLS()
	}
}

// reach fills in where one Redis is and who we are to it, from the settings whose names
// begin with prefix. It is false if the address cannot be read.
func (p *parser) reach(r *Redis, texts redisTexts, prefix string) bool {
	r.PoolSize = cmp.Or(r.PoolSize, defaultPoolSize)
	r.DialTimeout = cmp.Or(r.DialTimeout, defaultDialTimeout)
	target, err := parseTarget(texts.url, r.Type, texts.socketType)
	if err != nil {
		p.fail(prefix+"_URL", "%q: %w", maskURL(texts.url), err)
		return false
	}
	r.Network, r.Addresses, r.Master, r.DB = target.network, target.addresses, target.master, target.db
	r.Username, r.Password = target.username, target.password
	if p.has(prefix + "_AUTH") {
		r.Username, r.Password = credentials(texts.auth)
	}
	r.SentinelUsername, r.SentinelPassword = credentials(texts.sentinel)
	r.TLS = r.TLS || target.tls
	if r.TLS && r.Network == "unix" {
		p.fail(prefix+"_TLS", "is set for a unix socket, which has no TLS")
	}
	return true
}

// credentials splits user:password at the first colon; without one all is password.
func credentials(auth Secret) (username string, password Secret) {
	if user, pass, ok := strings.Cut(string(auth), ":"); ok {
		return user, Secret(pass)
	}
	return "", auth
}

// checkRedisTLS reports what is half said about TLS.
func (p *parser) checkRedisTLS() {
	r := &p.s.Redis
	if (r.ClientCert == "") != (r.ClientKey == "") {
		have, miss := "REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY"
		if r.ClientCert == "" {
			have, miss = miss, have
		}
		p.fail(have, "is set, and %s is not", miss)
	}
	for _, f := range []struct{ env, path string }{
		{"REDIS_TLS_CACERT", r.CACert},
		{"REDIS_TLS_CLIENT_CERT", r.ClientCert},
		{"REDIS_TLS_CLIENT_KEY", r.ClientKey},
	} {
		switch {
		case f.path == "":
		case !r.TLS && !p.has("REDIS_TLS") && !p.has("REDIS_PERSECOND_TLS"):
			p.fail(f.env, "is set, and neither is REDIS_TLS nor a rediss:// address")
		case r.TLS:
			if err := readable(f.path); err != nil {
				p.fail(f.env, "%w", err)
			}
		}
	}
}

// readable says why a file cannot be read, naming its path.
func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening %q: %w", path, cause(err))
	}
	return f.Close()
}
