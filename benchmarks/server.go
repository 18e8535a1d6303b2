package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
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

// freeAddr is a local address that is free just now, with a port below those that the
// system gives to outgoing connections, any of which could take it before the server does.
func freeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	var err error
	for range 100 {
		var ln net.Listener
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(20_000+rand.IntN(12_000)))
		if ln, err = lc.Listen(ctx, "tcp", addr); err == nil {
			return addr, ln.Close()
		}
	}
	return "", err
}

// port is the port of a host:port.
func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// find is the path of a program that scripts/tools.sh has fetched, if PATH has none.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	path, err := filepath.Abs(filepath.Join("..", ".cache", "bin", program))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is missing: scripts/tools.sh fetches it", program)
	}
	return path, nil
}
