//go:build integration

package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// composeFile is what docker-compose.yml may say here; other keys are an error.
type composeFile struct {
	Services map[string]*composeService `yaml:"services"`
}

type composeService struct {
	Image       string            `yaml:"image"`
	Build       string            `yaml:"build"`
	Command     []string          `yaml:"command"`
	NetworkMode string            `yaml:"network_mode"`
	Environment map[string]string `yaml:"environment"`
	Volumes     []string          `yaml:"volumes"`
	Ports       []string          `yaml:"ports"`
	DependsOn   map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Healthcheck *struct {
		Test     []string `yaml:"test"`
		Interval string   `yaml:"interval"`
		Timeout  string   `yaml:"timeout"`
		Retries  int      `yaml:"retries"`
	} `yaml:"healthcheck"`
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
}

func readCompose(t *testing.T, dir string) composeFile {
	t.Helper()
	var file composeFile
	readYAML(t, filepath.Join(dir, "docker-compose.yml"), &file, true)
	if len(file.Services) == 0 {
		t.Fatal("docker-compose.yml has no services")
	}
	return file
}

func readYAML(t *testing.T, path string, into any, strict bool) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(b))
	decoder.KnownFields(strict)
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// mounts returns the paths of the checkout by the paths in the container.
func (s *composeService) mounts() map[string]string {
	mounts := map[string]string{}
	for _, volume := range s.Volumes {
		parts := strings.Split(volume, ":")
		if len(parts) >= 2 {
			mounts[parts[1]] = parts[0]
		}
	}
	return mounts
}

// env returns a variable of a sluice, or the default that the binary has for it.
func (s *composeService) env(name, byDefault string) string {
	if value, ok := s.Environment[name]; ok {
		return value
	}
	return byDefault
}

// ours reports whether the service is built from the Dockerfile.
func (s *composeService) ours() bool { return s.Build != "" }

// envoyFile is the part of an Envoy configuration that has addresses.
type envoyFile struct {
	Admin struct {
		Address envoyAddress `yaml:"address"`
	} `yaml:"admin"`
	Static struct {
		Listeners []struct {
			Name    string       `yaml:"name"`
			Address envoyAddress `yaml:"address"`
		} `yaml:"listeners"`
		Clusters []struct {
			Name       string `yaml:"name"`
			Assignment struct {
				Endpoints []struct {
					LB []struct {
						Endpoint struct {
							Address envoyAddress `yaml:"address"`
						} `yaml:"endpoint"`
					} `yaml:"lb_endpoints"`
				} `yaml:"endpoints"`
			} `yaml:"load_assignment"`
		} `yaml:"clusters"`
	} `yaml:"static_resources"`
}

type envoyAddress struct {
	Socket struct {
		Address string `yaml:"address"`
		Port    string `yaml:"port_value"`
	} `yaml:"socket_address"`
}

func (a envoyAddress) String() string { return a.Socket.Address + ":" + a.Socket.Port }

func readEnvoy(t *testing.T, name string) envoyFile {
	t.Helper()
	var file envoyFile
	readYAML(t, filepath.Join(root, "examples", "envoy", name), &file, false)
	return file
}

// listeners returns the addresses by name.
func (f envoyFile) listeners() map[string]string {
	all := map[string]string{}
	for _, l := range f.Static.Listeners {
		all[l.Name] = l.Address.String()
	}
	return all
}

// endpoints returns the addresses of a cluster.
func (f envoyFile) endpoints(cluster string) []string {
	var all []string
	for _, c := range f.Static.Clusters {
		for _, locality := range c.Assignment.Endpoints {
			for _, e := range locality.LB {
				if c.Name == cluster {
					all = append(all, e.Endpoint.Address.String())
				}
			}
		}
	}
	return all
}
