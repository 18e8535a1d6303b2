package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// connectTimeout bounds the making of a TCP connection to one address, beside DialTimeout,
// which holds for all: names, TCP and TLS. Where packets get lost the kernel asks again after
// one second, then two, four and so on, and a dial holds a place of the pool meanwhile; who
// begins anew is there soon after they do not get lost any more.
const connectTimeout = 500 * time.Millisecond

// dial makes a connection, with TLS if there is a configuration for it. It ends with ctx.
func (o *Options) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	conn, err := connect(ctx, network, addr)
	if err != nil || o.TLS == nil {
		return conn, err
	}
	config := o.TLS
	if config.ServerName == "" { // as crypto/tls takes it from the address
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		config = config.Clone()
		config.ServerName = host
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// connect connects to the first address of a host that accepts.
func connect(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: connectTimeout}
	if network == "unix" {
		return d.DialContext(ctx, network, addr)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if host == "" { // this machine, as a node says that does not know its own address
		return d.DialContext(ctx, network, addr)
	}
	addrs, err := net.DefaultResolver.LookupIPAddr(ctx, host) // an address is its own
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range addrs {
		conn, err := d.DialContext(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// sentinelClient is a client for Sentinel whose dials end with it. Its Close has to wait for
// those that ask the sentinels for the master, one after another.
type sentinelClient struct {
	*redis.Client
	stop context.CancelFunc
}

func newSentinelClient(o redis.FailoverOptions) *sentinelClient {
	closing, stop := context.WithCancel(context.Background())
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(closing, cancel)()
		return dial(ctx, network, addr)
	}
	return &sentinelClient{redis.NewFailoverClient(&o), stop}
}

// Close is part of redis.UniversalClient.
func (c *sentinelClient) Close() error {
	c.stop()
	return c.Client.Close()
}
