package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// Type is the way in which Redis is run.
type Type uint8

// The ways in which Redis is run.
const (
	// Single is one server.
	Single Type = iota
	// Sentinel is a master that is found, also after a failover, by asking sentinels.
	Sentinel
	// Cluster is a Redis Cluster.
	Cluster
)

// Options are the settings of a Store. Addrs is required; the other zero values are the
// defaults.
type Options struct {
	// Addrs are host:port, or a socket's path if Network is unix: the server, the
	// sentinels, or some nodes of the cluster.
	Addrs []string
	// Network is tcp, or unix (Single only); tcp if empty.
	Network string
	Type    Type
	// MasterName is the name that the sentinels know the master by.
	MasterName string
	// Username and Password are for the servers. No password: no AUTH; no user name: the
	// default user.
	Username, Password string
	// SentinelUsername and SentinelPassword are for the sentinels.
	SentinelUsername, SentinelPassword string
	// TLS encrypts the connections to servers and sentinels; nil: plain. Where it names no
	// server, that of the address is checked.
	TLS *tls.Config
	// DB is the number of the database; 0 for a cluster.
	DB int
	// PoolSize is the most connections to one server that are used at once; 10 for each
	// processor if 0, on a cluster 5.
	PoolSize int
	// KeyPrefix stands before each key, so that several services can share a Redis.
	KeyPrefix string
	// DialTimeout bounds making a connection; 5 s if 0. One address has half a second to
	// accept it.
	DialTimeout time.Duration
	// ReadTimeout bounds the wait for an answer beside the caller's deadline; 250 ms if 0.
	ReadTimeout time.Duration
	// PoolTimeout bounds the wait for a free connection beside the caller's deadline;
	// ReadTimeout if 0. Shorter than the caller's, it makes a full pool an error of its
	// own kind.
	PoolTimeout time.Duration
	// Answered is told of each script that a node of a cluster has run, or failed to, by the
	// name that Server has for it, and how long that took. Nil: nobody is told.
	Answered func(server string, took time.Duration, err error)
	// Logger is told of mistakes of the program; nil discards it.
	Logger *slog.Logger
}

// withDefaults fills in what is zero, and reports what cannot be.
func (o Options) withDefaults() (Options, error) {
	if o.DialTimeout == 0 {
		o.DialTimeout = 5 * time.Second
	}
	if o.ReadTimeout == 0 {
		o.ReadTimeout = 250 * time.Millisecond
	}
	if o.PoolTimeout == 0 {
		o.PoolTimeout = o.ReadTimeout
	}
	if o.Answered == nil {
		o.Answered = func(string, time.Duration, error) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Network == "" {
		o.Network = "tcp"
	}
	switch {
	case len(o.Addrs) == 0:
		return o, errors.New("opening Redis: no address")
	case o.Type == Single && len(o.Addrs) != 1:
		return o, fmt.Errorf("opening Redis: %d addresses for one server", len(o.Addrs))
	case o.Type == Sentinel && o.MasterName == "":
		return o, errors.New("opening Redis: no name of the master for Sentinel")
	case o.Type == Cluster && o.DB != 0:
		return o, fmt.Errorf("opening Redis: database %d: a cluster has only 0", o.DB)
	case o.Network == "unix" && o.Type != Single:
		return o, errors.New("opening Redis: a unix socket is for one server only")
	}
	return o, nil
}

// client makes the connections' pool; it dials nothing yet.
//
// MaxRetries is -1 everywhere: go-redis would send a command again whose answer was lost,
// and charge it twice. What a cluster's client resends all the same is settled by script.
// RESP2 and no CLIENT SETINFO: nothing that Redis 6.2 does not know, and a round trip less
// for a new connection.
func (o *Options) client() redis.UniversalClient {
	switch o.Type {
	case Sentinel:
		return newSentinelClient(redis.FailoverOptions{
			MasterName: o.MasterName, SentinelAddrs: o.Addrs,
			SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
			Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLS,
			Protocol: 2, DisableIdentity: true,
			MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			Dialer: o.dial, DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout,
			PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout,
		})
	case Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: o.Addrs, Username: o.Username, Password: o.Password, TLSConfig: o.TLS,
			Protocol: 2, DisableIdentity: true, DisableRoutingPolicies: true,
			MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			Dialer: o.dial, DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout,
			PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout,
		})
	default:
		return redis.NewClient(&redis.Options{
			Network: o.Network, Addr: o.Addrs[0],
			Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLS,
			Protocol: 2, DisableIdentity: true,
			MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			Dialer: o.dial, DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout,
			PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout,
		})
	}
}
