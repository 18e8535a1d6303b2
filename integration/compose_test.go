//go:build integration

package integration

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// Each address that one file names is one where another file has somebody listen.
func TestComposeAddresses(t *testing.T) {
	t.Parallel()
	file, edge, upstream := readCompose(t, root), readEnvoy(t, "envoy.yaml"), readEnvoy(t, "upstream.yaml")

	var replicas, redisURLs, published []string
	listening := map[string]string{"admin of envoy": edge.Admin.Address.Socket.Port}
	for name, l := range edge.listeners() {
		listening[name], published = port(l), append(published, port(l))
	}
	for name, s := range file.Services {
		if !s.ours() {
			continue
		}
		grpc, http := s.env("GRPC_PORT", "8081"), s.env("PORT", "8080")
		replicas = append(replicas, "127.0.0.1:"+grpc)
		redisURLs = append(redisURLs, s.Environment["REDIS_URL"])
		published = append(published, grpc, http)
		listening[name+" gRPC"], listening[name+" HTTP"], listening[name+" debug"] = grpc, http, s.env("DEBUG_PORT", "6070")
	}
	equal := func(what string, got, want []string) {
		t.Helper()
		if diff := gocmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	equal("replicas of the ratelimit cluster and of the compose file", edge.endpoints("ratelimit"), replicas)
	equal("the upstream's cluster and its listener", edge.endpoints("upstream"), slices.Collect(maps.Values(upstream.listeners())))

	redis := file.Services["redis"]
	bind, redisPort := argument(redis.Command, "--bind"), argument(redis.Command, "--port")
	listening["redis"] = redisPort
	for _, url := range redisURLs {
		if url != bind+":"+redisPort {
			t.Errorf("REDIS_URL = %q, want %s:%s where redis listens", url, bind, redisPort)
		}
	}
	for _, l := range upstream.listeners() {
		listening["upstream"] = port(l)
	}

	// One namespace: a port can be taken once.
	by := map[string]string{}
	for name, p := range listening {
		if other, taken := by[p]; taken {
			t.Errorf("port %s is both %s and %s", p, name, other)
		}
		by[p] = name
	}
	for name, s := range file.Services {
		if name != "envoy" && (s.NetworkMode != "service:envoy" || s.Ports != nil) {
			t.Errorf("%s: network_mode %q and ports %q, want service:envoy and none", name, s.NetworkMode, s.Ports)
		}
	}
	for _, p := range file.Services["envoy"].Ports {
		host, container := cutLast(p, ":")
		if !slices.Contains(published, container) || !strings.HasSuffix(host, ":"+container) {
			t.Errorf("published port %q, want the same port on both sides, of %q", p, published)
		}
	}
	for name, l := range edge.listeners() {
		if !strings.HasPrefix(l, "0.0.0.0:") {
			t.Errorf("listener %s at %s: Docker publishes only what listens on all addresses", name, l)
		}
	}
}

// Each path of the compose file is there, and used by the command that it is mounted for.
func TestComposeFiles(t *testing.T) {
	t.Parallel()
	file := readCompose(t, root)
	for name, s := range file.Services {
		for container, host := range s.mounts() {
			if _, err := os.Stat(filepath.Join(root, host)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !slices.Contains(s.Command, container) {
				t.Errorf("%s: command %q does not name the mounted %s", name, s.Command, container)
			}
		}
		for _, volume := range s.Volumes {
			if !strings.HasPrefix(volume, "./examples/envoy/") || !strings.HasSuffix(volume, ":ro") {
				t.Errorf("%s: volume %q, want a part of ./examples/envoy, read-only", name, volume)
			}
		}
		for _, arg := range s.Command {
			if strings.HasPrefix(arg, "/") && s.mounts()[arg] == "" {
				t.Errorf("%s: command names %s, which nothing is mounted at", name, arg)
			}
		}
		for other, on := range s.DependsOn {
			switch {
			case file.Services[other] == nil:
				t.Errorf("%s depends on %s, which is no service", name, other)
			case on.Condition == "service_healthy" && file.Services[other].Healthcheck == nil:
				t.Errorf("%s waits for %s to be healthy, which has no healthcheck", name, other)
			}
		}
	}
}

// Images have the versions that the tests run.
func TestComposeImages(t *testing.T) {
	t.Parallel()
	tools := mustRead(t, "scripts", "tools.sh")
	envoy := "envoyproxy/envoy:v" + mustFind(t, tools, `(?m)^readonly envoy_version=(\S+)$`)
	for name, s := range readCompose(t, root).Services {
		switch {
		case s.ours():
			if s.Build != "." || s.Image != "sluice:dev" {
				t.Errorf("%s: build %q and image %q, want the Dockerfile of the checkout and sluice:dev", name, s.Build, s.Image)
			}
			if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) {
				t.Errorf("%s: read_only %v, cap_drop %q, want a read-only root and no capability", name, s.ReadOnly, s.CapDrop)
			}
		case strings.HasPrefix(s.Image, "envoyproxy/"):
			if s.Image != envoy {
				t.Errorf("%s: image %q, want %q as in scripts/tools.sh", name, s.Image, envoy)
			}
		default:
			if !strings.HasPrefix(s.Image, "redis:") || strings.HasSuffix(s.Image, ":latest") {
				t.Errorf("%s: image %q, want redis with a version", name, s.Image)
			}
		}
	}
}

// The Dockerfile builds what the compose file, Istio and Envoy Gateway start.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := mustRead(t, "Dockerfile")
	find := func(pattern string) string { t.Helper(); return mustFind(t, text, pattern) }
	equal := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s = %q, want %q", what, got, want)
		}
	}
	stages := regexp.MustCompile(`(?m)^FROM .*$`).FindAllString(text, -1)
	equal("last stage", stages[len(stages)-1], "FROM scratch")
	goVersion := mustFind(t, mustRead(t, "go.mod"), `(?m)^go (\d+\.\d+)`)
	equal("Go of the build", find(`golang:(\d+\.\d+)`), goVersion)
	equal("built file", find(`-o (\S+) \./cmd/sluice`), "/image/bin/sluice")
	equal("link for the reference's command", find(`ln -s (\S+ \S+)`), "sluice /image/bin/ratelimit")
	equal("copied tree", find(`(?m)^COPY --from=build (.*)$`), "/image/ /")
	equal("user", find(`(?m)^USER (.*)$`), "65532:65532")
	equal("ports", find(`(?m)^EXPOSE (.*)$`), "8080 8081 6070")
	equal("entrypoint", find(`(?m)^ENTRYPOINT (.*)$`), `["/bin/sluice"]`)
	equal("certificates", find(`cp (\S+) /image/etc/ssl/certs/`), "/etc/ssl/certs/ca-certificates.crt")
	for _, want := range []string{"CGO_ENABLED=0", "-trimpath", "GOOS=$TARGETOS", "GOARCH=$TARGETARCH"} {
		if !strings.Contains(text, want) {
			t.Errorf("Dockerfile lacks %s", want)
		}
	}

	// The linker is silent about a variable that is not there.
	variable := find(`-X main\.(\w+)=\$VERSION`)
	sources, err := filepath.Glob(filepath.Join(root, "cmd", "sluice", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^(?:var |\t)` + variable + `\b.*string`)
	if !slices.ContainsFunc(sources, func(path string) bool {
		b, err := os.ReadFile(path)
		return err == nil && declared.Match(b)
	}) {
		t.Errorf("cmd/sluice has no variable %s", variable)
	}
	// What the build needs must not be left out of its context.
	ignored := strings.Fields(mustRead(t, ".dockerignore"))
	for _, needed := range []string{"cmd", "go.mod", "go.sum", "examples", "rls", "internal"} {
		if slices.Contains(ignored, needed) {
			t.Errorf(".dockerignore leaves out %s", needed)
		}
	}
}

// port returns the port of host:port.
func port(address string) string {
	_, p := cutLast(address, ":")
	return p
}

// argument returns what follows a flag in a command.
func argument(command []string, flag string) string {
	i := slices.Index(command, flag)
	if i < 0 || i+1 == len(command) {
		return ""
	}
	return command[i+1]
}

// mustRead returns a file of the checkout.
func mustRead(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, filepath.Join(path...)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// mustFind returns the group of the pattern, or the whole match if it has none.
func mustFind(t *testing.T, text, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no match of %s", pattern)
	}
	return cmp.Or(m[1:]...)
}
