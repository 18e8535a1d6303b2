package config

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// places are the folders, by path without links, in which a change may change what is
// read: the rules folders, and every folder that an entry lies in over which one comes
// to them. The second kind is what shows the swap of a link, and a folder that comes
// and goes.
type places map[string]*place

// A place is one of them.
type place struct {
	info  fs.FileInfo         // which folder it is; nil if it is gone already
	all   bool                // every entry matters
	names map[string]struct{} // else these
}

// at is the place of a folder, made if need be.
func (p places) at(dir string) *place {
	if p[dir] == nil {
		info, err := os.Lstat(dir)
		if err != nil {
			info = nil
		}
		p[dir] = &place{info: info, names: map[string]struct{}{}}
	}
	return p[dir]
}

// all notes that every entry of a folder matters.
func (p places) all(dir string) { p.at(dir).all = true }

// maxLinks is the most links on one way, as in the kernel.
const maxLinks = 40

// follow is the path that an absolute path leads to, without links. It notes each
// folder on the way with the entry that was looked up there, as far as the way goes.
func (p places) follow(path string) (string, error) {
	dir, todo := split(path)
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		p.at(dir).names[name] = struct{}{}
		next := filepath.Join(dir, name)
		info, err := os.Lstat(next)
		if err != nil {
			return next, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			dir = next
			continue
		}
		if links++; links > maxLinks {
			return next, fmt.Errorf("following %q: %w", path, syscall.ELOOP)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return next, err
		}
		root, more := split(target)
		if filepath.IsAbs(target) {
			dir = root
		}
		todo = append(more, todo...)
	}
	return dir, nil
}

// split is the root of a path and the names that follow it.
func split(path string) (root string, names []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), strings.Split(path[len(volume):], string(filepath.Separator))
}

// same reports whether the same folders are to be watched for the same entries.
func (p places) same(q places) bool {
	return maps.EqualFunc(p, q, func(a, b *place) bool {
		if a.info == nil || b.info == nil || !os.SameFile(a.info, b.info) {
			return false
		}
		return a.all == b.all && maps.Equal(a.names, b.names)
	})
}

// concern reports whether an event at path may change what is read, and whether it
// changes a watched folder itself.
func (p places) concern(path string) (matters, folder bool) {
	path = filepath.Clean(path)
	if p[path] != nil {
		return true, true
	}
	place := p[filepath.Dir(path)]
	if place == nil {
		return false, false
	}
	_, named := place.names[filepath.Base(path)]
	return place.all || named, false
}
