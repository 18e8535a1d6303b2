package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// target is what a Redis address says.
type target struct {
	network   string
	addresses []string
	master    string
	username  string
	password  Secret
	db        int
	tls       bool
}

// redisPort is the port of a URL that names none.
const redisPort = "6379"

// parseTarget reads REDIS_URL: host:port, a unix socket's path, a URL of the scheme
// redis, rediss or unix, or a comma list for a cluster (nodes) and for Sentinel (the
// master's name, then sentinels). The scheme and the credentials of a list stand once,
// before it. Errors never hold text that may be part of a password.
//
// It does not use url.Parse: passwords are written with /, # and @ as they are, and a
// list of hosts is no URL's authority.
func parseTarget(text, kind, socket string) (target, error) {
	var t target
	scheme, rest, isURL := cutScheme(text)
	switch scheme {
	case "", "redis", "rediss", "unix":
	default:
		return t, errors.New("the scheme is not redis, rediss or unix")
	}
	if socket == "unix" && strings.HasPrefix(scheme, "redis") {
		return t, errors.New(`the socket type is "unix", and the address is not a path`)
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 && scheme != "unix" && !strings.HasPrefix(rest, "/") {
		if err := t.userinfo(rest[:at]); err != nil {
			return t, err
		}
		rest = rest[at+1:]
	}
	if isPath(scheme, rest, socket) {
		return t, t.socket(rest, kind, socket)
	}
	t.network, t.tls = "tcp", scheme == "rediss"
	if isURL {
		var err error
		if rest, err = t.database(rest, kind); err != nil {
			return t, err
		}
	}
	return t, t.hosts(rest, kind, isURL)
}

// userinfo reads what stands before the @. Without a colon it is a password, as for
// redis-cli: a user name alone opens nothing.
func (t *target) userinfo(text string) error {
	username, password := credentials(Secret(text))
	var err1, err2 error
	t.username, err1 = url.PathUnescape(username)
	plain, err2 := url.PathUnescape(string(password))
	if err1 != nil || err2 != nil {
		return errors.New("the credentials hold a % that begins no escape: write it %25")
	}
	t.password = Secret(plain)
	return nil
}

// isPath reports whether an address is meant as a unix socket's path.
func isPath(scheme, rest, socket string) bool {
	if scheme == "unix" || strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, "./") {
		return true
	}
	return socket == "unix" && scheme == ""
}

// socket takes a unix socket's path.
func (t *target) socket(path, kind, socket string) error {
	switch {
	case socket == "tcp":
		return errors.New(`the socket type is "tcp", and the address is a path`)
	case kind != Single:
		return fmt.Errorf("%s needs host:port addresses, not a path", kind)
	case path == "":
		return errors.New("the path is empty")
	}
	if _, port, err := net.SplitHostPort(path); err == nil && isPort(port) && !strings.Contains(path, "/") {
		return errors.New(`the socket type is "unix", and the address is not a path`)
	}
	t.network, t.addresses = "unix", []string{path}
	return nil
}

// database takes the /number off the end of a URL.
func (t *target) database(rest, kind string) (string, error) {
	if strings.ContainsAny(rest, "?#") {
		return "", errors.New("the address has options after ? or #, and none is known")
	}
	hosts, number, _ := strings.Cut(rest, "/")
	if number == "" {
		return hosts, nil
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return "", errors.New("the database after the / is not a number")
	}
	if kind == Cluster && n != 0 {
		return "", fmt.Errorf("database %d: a cluster has only database 0", n)
	}
	t.db = int(n)
	return hosts, nil
}

// hosts takes the address or the list of them.
func (t *target) hosts(list, kind string, isURL bool) error {
	if strings.Contains(list, "://") {
		return errors.New("the scheme stands once, before the whole list")
	}
	items := strings.Split(list, ",")
	switch {
	case kind == Single && len(items) > 1:
		return errors.New("a list of addresses needs REDIS_TYPE CLUSTER or SENTINEL")
	case kind == Sentinel && len(items) < 2:
		return errors.New("SENTINEL needs the master's name and at least one sentinel: name,host:port")
	case kind == Sentinel:
		t.master = strings.TrimSpace(items[0])
		items = items[1:]
		if t.master == "" || strings.Contains(t.master, ":") {
			return errors.New("SENTINEL needs the master's name before the sentinels: name,host:port")
		}
	}
	for _, item := range items {
		address, err := hostPort(strings.TrimSpace(item), isURL && kind != Sentinel)
		if err != nil {
			return err
		}
		t.addresses = append(t.addresses, address)
	}
	return nil
}

// hostPort checks an address, and completes one without a port if that is allowed.
func hostPort(text string, portless bool) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil && portless && text != "" {
		bare := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
		if !strings.Contains(bare, ":") || net.ParseIP(bare) != nil {
			host, port, err = bare, redisPort, nil
		}
	}
	switch {
	case err != nil || strings.ContainsAny(host, " /"):
		return "", errors.New("the address is not host:port, a path, or redis://user:password@host:port/0")
	case !isPort(port) || port == "0":
		return "", errors.New("the port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, port), nil
}

// cutScheme splits off what stands before ://, if that can be a scheme.
func cutScheme(text string) (scheme, rest string, isURL bool) {
	scheme, rest, isURL = strings.Cut(text, "://")
	if !isURL || strings.ContainsFunc(scheme, func(r rune) bool { return r < 'a' || r > 'z' }) {
		return "", text, false
	}
	return scheme, rest, true
}

// maskURL is a Redis address fit to be shown. Beside what stands before the last @ it
// hides options, and all from the first port that is not a number:
// redis://user:password without a host is an easy slip.
func maskURL(text string) string {
	if strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") {
		return text
	}
	scheme, rest, isURL := cutScheme(text)
	prefix := ""
	if isURL {
		prefix = scheme + "://"
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		prefix, rest = prefix+masked+"@", rest[at+1:]
	}
	if options := strings.IndexAny(rest, "?#"); options >= 0 {
		rest = rest[:options] + "?" + masked
	}
	items := strings.Split(rest, ",")
	for i, item := range items {
		colon := strings.LastIndexByte(item, ':')
		number := item[colon+1:]
		if end := strings.IndexAny(number, "/?"); end >= 0 {
			number = number[:end]
		}
		if colon < 0 || isPort(number) || strings.HasSuffix(item, "]") {
			continue
		}
		items[i] = item[:colon+1] + masked
		items = items[:i+1]
		break
	}
	return prefix + strings.Join(items, ",")
}
