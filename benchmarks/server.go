package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// echoServer answers OK to everything.
type echoServer struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

// ShouldRateLimit is part of rlsv3.RateLimitServiceServer.
func (echoServer) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}, nil
}

// serveEcho serves the bare server until ctx is done.
func serveEcho(ctx context.Context, addr string) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(s, echoServer{})
	context.AfterFunc(ctx, s.Stop)
	return s.Serve(ln)
}

// process is a server that runs.
type process struct {
	cmd    *exec.Cmd
	addr   string
	stderr bytes.Buffer
}

// start runs a program and waits until it listens at addr.
func start(ctx context.Context, addr string, env []string, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, name, args...), addr: addr}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return p, conn.Close()
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			p.stop()
			return nil, fmt.Errorf("%s does not listen at %s: %w\n%s", filepath.Base(name), addr, err, p.stderr.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// ticksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// cpu is the user and system time that the process has used so far.
func (p *process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything; utime and stime are the 12th and 13th
	// field after it.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, errors.New("reading the CPU time of a process: its stat is short")
	}
	var ticks uint64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// resident is the memory of the process, in bytes, at its highest.
func (p *process) resident() (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("reading the memory of a process: no VmHWM in its status")
}

// freeAddr is a local address that is free just now.
func freeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// startVariant runs a variant, and Redis for those that keep their buckets there (else nil).
func startVariant(ctx context.Context, o options, v variant, rules string) (server, redis *process, err error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, nil, err
	}
	if v.echo() {
		self, err := os.Executable()
		if err != nil {
			return nil, nil, err
		}
		server, err = start(ctx, addr, nil, self, "-echo", addr)
		return server, nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	env := []string{"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + port, "PORT=0", "DEBUG_PORT=0", "GRPC_ENGINE=" + v.engine, "LOG_LEVEL=error"}
	if v.redis {
		if redis, err = startRedis(ctx); err != nil {
			return nil, nil, err
		}
		env = append(env, "REDIS_URL="+redis.addr)
	}
	if server, err = start(ctx, addr, env, o.binary, "serve", "-rules", rules); err != nil && redis != nil {
		redis.stop()
	}
	return server, redis, err
}

func startRedis(ctx context.Context) (*process, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if program, err = filepath.Abs("../.cache/bin/redis-server"); err != nil {
			return nil, err
		}
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	return start(ctx, addr, nil, program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
}
