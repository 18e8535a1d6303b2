package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// envoyClients is how many clients the Envoy of a case has, each with a connection.
const envoyClients = 64

//go:embed envoy.yaml
var envoyConfig string

// startEnvoy puts an Envoy with two workers before the server.
func (s *stack) startEnvoy(ctx context.Context) error {
	program, err := find("envoy")
	if err != nil {
		return err
	}
	edge, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	upstream, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	config := strings.NewReplacer("SERVER", port(s.server.addr), "EDGE", port(edge), "UPSTREAM", port(upstream)).Replace(envoyConfig)
	s.envoy, err = start(ctx, edge, nil, program, "--config-yaml", config, "--disable-hot-restart", "--concurrency", "2", "--log-level", "error")
	return err
}

// dialHTTP makes callers that send a request over a connection of their own.
func dialHTTP(ctx context.Context, addr string, n int) (all []caller, hangUp func(), err error) {
	var conns []net.Conn
	hangUp = func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
	request := []byte("GET / HTTP/1.1\r\nHost: edge\r\nx-api-key: k0\r\n\r\n")
	for range n {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			hangUp()
			return nil, nil, err
		}
		conns = append(conns, conn)
		answers := bufio.NewReader(conn)
		all = append(all, func(context.Context, int) (over bool, err error) {
			if _, err := conn.Write(request); err != nil {
				return false, err
			}
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				return false, err
			}
			if _, err := io.Copy(io.Discard, answer.Body); err != nil {
				return false, err
			}
			switch answer.StatusCode {
			case http.StatusOK, http.StatusTooManyRequests:
				return answer.StatusCode == http.StatusTooManyRequests, answer.Body.Close()
			}
			return false, fmt.Errorf("the edge answers %s", answer.Status)
		})
	}
	return all, hangUp, nil
}
