package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// stack is a server to measure and what runs with it.
type stack struct {
	server *process
	redis  *process // where the server keeps its buckets; nil if in itself
	envoy  *process // whose calls the server answers; nil if those of this process
	http   string   // the address of the server's pages; empty if it has none
}

// startStack runs a variant.
func startStack(ctx context.Context, o options, v variant, rules string) (*stack, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	s := &stack{}
	if v.echo() {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		s.server, err = start(ctx, addr, nil, self, "-echo", addr)
		return s, err
	}
	if s.http, err = freeAddr(ctx); err != nil {
		return nil, err
	}
	env := []string{"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + port(addr), "HOST=127.0.0.1", "PORT=" + port(s.http), "DEBUG_PORT=0", "GRPC_ENGINE=" + v.engine, "LOG_LEVEL=error"}
	if v.redis {
		if s.redis, err = startRedis(ctx); err != nil {
			return nil, err
		}
		// No call gives up on Redis, which would make it cheap.
		env = append(env, "REDIS_URL="+s.redis.addr, "PREFETCH=auto", "REDIS_BUDGET=1s")
	}
	if s.server, err = start(ctx, addr, env, o.binary, "serve", "-rules", rules); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func startRedis(ctx context.Context) (*process, error) {
	program, err := find("redis-server")
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	return start(ctx, addr, nil, program, "--port", port(addr), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
}

func (s *stack) stop() {
	for _, p := range []*process{s.envoy, s.server, s.redis} {
		if p != nil {
			p.stop()
		}
	}
}

// usage is what a stack has used so far, or in a while.
type usage struct {
	server, redis, envoy time.Duration // of CPU
	reads                int64         // that Redis did from its connections
}

func (u usage) less(v usage) usage {
	return usage{u.server - v.server, u.redis - v.redis, u.envoy - v.envoy, u.reads - v.reads}
}

func (s *stack) usage(ctx context.Context) (u usage, err error) {
	if s.redis != nil {
		if u.reads, err = redisNumber(ctx, s.redis.addr, "INFO stats", "total_reads_processed:"); err != nil {
			return u, err
		}
		if u.redis, err = s.redis.cpu(); err != nil {
			return u, err
		}
	}
	if s.envoy != nil {
		if u.envoy, err = s.envoy.cpu(); err != nil {
			return u, err
		}
	}
	u.server, err = s.server.cpu()
	return u, err
}

// redisNumber makes a call of Redis and gives the number that follows a text in its answer.
func redisNumber(ctx context.Context, addr, command, before string) (int64, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\nQUIT\r\n", command); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), before); ok {
			return strconv.ParseInt(text, 10, 64)
		}
	}
	return 0, fmt.Errorf("asking Redis %s: no %s in the answer", command, before)
}
