package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A listing is what one look at the folder found, without the contents.
type listing struct {
	files []found
	// places are the folders whose changes may change the listing.
	places places
}

// found is a rules file in a listing.
type found struct {
	name   string      // as shown
	actual string      // without links
	info   fs.FileInfo // of the file itself, not of a link to it; nil with err
	err    error
}

// same reports whether two looks found the same files in the same places: their contents
// are equal as far as names, sizes and times can tell.
func (l listing) same(m listing) bool {
	return slices.EqualFunc(l.files, m.files, found.same) && l.places.same(m.places)
}

func (f found) same(g found) bool {
	if f.name != g.name || f.actual != g.actual {
		return false
	}
	if f.err != nil || g.err != nil {
		return f.err != nil && g.err != nil && f.err.Error() == g.err.Error()
	}
	return os.SameFile(f.info, g.info) && f.info.Size() == g.info.Size() &&
		f.info.ModTime().Equal(g.info.ModTime()) && f.info.Mode() == g.info.Mode()
}

// A scanner makes a listing.
type scanner struct {
	listing
	bounds bounds
	walked map[string]bool // folders, by path without links
	bytes  int64           // in all files
}

// scan looks at the folder. The listing of a scan that failed has no files, but the
// places to watch for the mend.
func (f *Folder) scan() (listing, error) {
	s := scanner{listing: listing{places: places{}}, bounds: f.bounds, walked: map[string]bool{}}
	err := s.scan(f.path, f.opts.Beside)
	if err != nil {
		s.files = nil
		return s.listing, fmt.Errorf("reading rules %q: %w", f.path, err)
	}
	slices.SortFunc(s.files, func(a, b found) int { return strings.Compare(a.name, b.name) })
	return s.listing, nil
}

func (s *scanner) scan(path string, beside bool) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	actual, err := s.places.follow(absolute)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(actual)
	}
	if beside {
		s.beside(absolute, path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(s.files) > 0:
		return nil // the files beside the folder are enough to go by
	case err != nil:
		return cause(err)
	case info.IsDir():
		return s.walk(actual, path)
	}
	return s.add(found{name: path, actual: actual, info: info})
}

// walk lists the folder at actual, which is called shown.
func (s *scanner) walk(actual, shown string) error {
	if s.walked[actual] {
		return nil // a link led back to where it lies, or two links to one folder
	}
	if s.walked[actual] = true; len(s.walked) > s.bounds.folders {
		return fmt.Errorf("there are more than %d folders", s.bounds.folders)
	}
	s.places.all(actual)
	entries, err := os.ReadDir(actual)
	if err != nil {
		return fmt.Errorf("listing %q: %w", shown, cause(err))
	}
	for _, entry := range entries {
		if err := s.entry(actual, shown, entry); err != nil {
			return err
		}
	}
	return nil
}

// entry lists one entry of a folder.
func (s *scanner) entry(actual, shown string, entry fs.DirEntry) error {
	name := entry.Name()
	if skipped(name) {
		return nil
	}
	file := found{name: filepath.Join(shown, name), actual: filepath.Join(actual, name)}
	if entry.Type()&fs.ModeSymlink != 0 {
		file.actual, file.err = s.places.follow(file.actual)
	}
	if file.err == nil {
		file.info, file.err = os.Stat(file.actual)
	}
	switch {
	case file.err == nil && file.info.IsDir():
		return s.walk(file.actual, file.name)
	case !isRules(name):
		return nil
	case errors.Is(file.err, fs.ErrNotExist) && entry.Type()&fs.ModeSymlink == 0:
		return nil // deleted since it was listed
	}
	return s.add(file)
}

// add lists a file, with an error if it is none that can be read. Its own error is that
// there are too many, or too much in them.
func (s *scanner) add(file found) error {
	if file.err == nil {
		file.err = fit(file.info, s.bounds.file)
	}
	if file.err != nil {
		file.err = fmt.Errorf("reading %q: %w", file.name, cause(file.err))
		file.info = nil
	} else {
		s.bytes += file.info.Size()
	}
	s.files = append(s.files, file)
	if len(s.files) > s.bounds.files {
		return fmt.Errorf("there are more than %d files", s.bounds.files)
	}
	if s.bytes > s.bounds.total {
		return fmt.Errorf("the files hold more than %d bytes together", s.bounds.total)
	}
	return nil
}

// fit refuses what is not a file of a fitting size.
func fit(info fs.FileInfo, limit int64) error {
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	if info.Size() > limit {
		return fmt.Errorf("%d bytes are above %d", info.Size(), limit)
	}
	return nil
}

// beside lists the files that lie beside a folder and begin with its name and a dot. It
// is no mistake if the folder that they lie in may not be listed: few have any.
func (s *scanner) beside(absolute, shown string) {
	actual, err := s.places.follow(filepath.Dir(absolute))
	if err != nil {
		return
	}
	s.places.all(actual)
	entries, err := os.ReadDir(actual)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), filepath.Base(absolute)+".") && isRules(entry.Name()) {
			_ = s.entry(actual, filepath.Dir(shown), entry) // the bound that it checks is checked again
		}
	}
}

// skipped reports whether an entry is none of ours, be it a file or a folder.
func skipped(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") ||
		strings.HasPrefix(name, "#") || strings.EqualFold(strings.TrimSuffix(name, filepath.Ext(name)), "readme")
}

// isRules reports whether a file's name is that of rules. Backups (x.yaml.bak,
// x.yaml.orig, .x.yaml.swp) end otherwise.
func isRules(name string) bool {
	ext := filepath.Ext(name)
	return strings.EqualFold(ext, ".yaml") || strings.EqualFold(ext, ".yml")
}

// read reads the files of a listing, each of at most limit bytes.
func (l listing) read(limit int64) []File {
	files := make([]File, 0, len(l.files))
	for _, item := range l.files {
		file := File{Name: item.name, Err: item.err}
		if file.Err == nil {
			file.Data, file.Err = readFile(item, limit)
		}
		files = append(files, file)
	}
	return files
}

// readFile reads a listed file. It opens without waiting, in case that a pipe has taken
// the file's place. It does not keep to the folder as os.Root does: rules are trusted,
// and links out of the folder are how some deployments put them there.
func readFile(item found, limit int64) ([]byte, error) {
	wrap := func(err error) error { return fmt.Errorf("reading %q: %w", item.name, cause(err)) }
	file, err := os.OpenFile(item.actual, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, wrap(err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	info, err := file.Stat()
	if err == nil {
		err = fit(info, limit)
	}
	if err != nil {
		return nil, wrap(err)
	}
	data := make([]byte, info.Size())
	n, err := io.ReadFull(file, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, wrap(err)
	}
	return data[:n], nil // less than its size: it was cut meanwhile
}
