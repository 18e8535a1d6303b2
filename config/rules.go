package config

import (
	"os"
	"path/filepath"
)

// ruleSigns are the settings of which any one says that the user has rules.
var ruleSigns = []string{
	"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY",
	"RUNTIME_WATCH_ROOT", "RUNTIME_IGNOREDOTFILES", "CONFIG_TYPE",
}

// resolveRules finds the rules folder and looks whether it is there.
func (p *parser) resolveRules() {
	s := &p.s
	if p.has("rules") {
		s.rulesPath = s.Rules
		p.checkRules("rules")
		return
	}
	if !p.hasAny(ruleSigns) {
		s.examples = true
		return
	}
	if p.has("CONFIG_TYPE") && s.ConfigType != "FILE" {
		return // an error of its own
	}
	s.rulesPath = filepath.Join(s.RuntimeRoot, s.RuntimeSubdirectory, s.RuntimeAppDirectory)
	s.beside = s.RuntimeWatchRoot && s.RuntimeSubdirectory != ""
	p.checkRules(p.firstMissing())
}

// checkRules reports rules that cannot be read, as the fault of the row id.
func (p *parser) checkRules(id string) {
	if _, err := NewFolder(p.s.rulesPath, p.s.FolderOptions()).scan(); err != nil {
		p.fail(id, "%w", err)
	}
}

// firstMissing is the RUNTIME setting that names a folder which is not there.
func (p *parser) firstMissing() string {
	path := p.s.RuntimeRoot
	if _, err := os.Stat(path); err != nil {
		return "RUNTIME_ROOT"
	}
	if _, err := os.Stat(filepath.Join(path, p.s.RuntimeSubdirectory)); err != nil {
		return "RUNTIME_SUBDIRECTORY"
	}
	return "RUNTIME_APPDIRECTORY"
}
