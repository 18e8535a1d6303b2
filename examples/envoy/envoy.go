// Package envoy holds the example that the documentation, docker-compose.yml and the
// integration tests share: an Envoy that asks Sluice about every request (envoy.yaml),
// the service behind it (upstream.yaml), and the limits (the folder rules).
//
// A Sluice that is told nothing about rules serves these.
package envoy

import (
	"embed"
	"io/fs"
)

//go:embed rules
var files embed.FS

// Rules returns the rule files of the example, at the root of the file system.
func Rules() fs.FS {
	rules, err := fs.Sub(files, "rules")
	if err != nil {
		panic(err) // fs.Sub refuses nothing but an invalid path, and this one is fixed
	}
	return rules
}
