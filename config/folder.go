package config

import (
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"path/filepath"
	"slices"
	"time"
)

// The bounds of a rules folder. They keep a path set by mistake (the root of a disk, a
// folder of dumps) from filling the memory; rules stay far below them.
const (
	// MaxFile is the most bytes in one file; a larger one is an error of that file.
	MaxFile = 16 << 20
	// MaxTotal, MaxFiles and MaxFolders bound the whole folder; more is an error of the
	// folder, and nothing of it is read.
	MaxTotal   = 64 << 20
	MaxFiles   = 10_000
	MaxFolders = 1_000
)

// bounds are these bounds, smaller ones in tests.
type bounds struct {
	file, total    int64
	files, folders int
}

// File is a rules file as it was found.
type File struct {
	// Name is the path of the file as errors show it: the folder's path as it was
	// given, then the way to the file. It may be a link.
	Name string
	// Data is the content. It belongs to the receiver.
	Data []byte
	// Err says why the file is there and could not be read (no permission, a link to
	// nothing, too large); Data is nil then. What last came from it should stay in force.
	Err error
}

// FolderOptions are what is optional about a Folder.
type FolderOptions struct {
	// Beside also reads the files beside the folder whose names begin with the folder's
	// name and a dot, such as config.edge.yaml beside config: envoyproxy/ratelimit with
	// RUNTIME_WATCH_ROOT does.
	Beside bool
	// Quiet is how long a burst of changes must be over before the folder is read, and
	// Most the longest that a burst without end can hold that up. Defaults: 100 ms and
	// 500 ms.
	Quiet, Most time.Duration
	// Poll is the time between two looks at names, sizes and times, which find what no
	// notification told (a network disk, no inotify watches left). Default: 10 s.
	Poll time.Duration
	// Log is told when notifications fail and when they work again. Default: nobody.
	Log *slog.Logger
}

// Folder is a folder of rules files, or one file, that changes while the process runs.
//
// What counts as a rules file: every *.yaml and *.yml of the folder and its subfolders,
// but nothing whose name begins with a dot (Kubernetes' ..data among it), no README and
// no editor's backup. Links are followed, wherever they lead; a folder that is met
// twice is read once, under the first of its names. Files come sorted by name. If the
// path is a file, it is read whatever its name.
//
// One goroutine at a time uses a Folder: first Read if wanted, then Run.
type Folder struct {
	path string
	opts FolderOptions
	// newNotifier starts notifications; tests put failing ones here.
	newNotifier func() (notifier, error)
	bounds      bounds

	// What was last handed out.
	digest  [sha256.Size]byte
	failure string // text of the error, empty after a good read
	partial bool   // whether a file of it could not be read
	handed  bool   // whether anything was
	listing listing
}

// NewFolder is a folder (or a file) to read rules from. The path need not exist yet. A
// relative one is taken from the working directory of each read.
func NewFolder(path string, opts FolderOptions) *Folder {
	if opts.Quiet <= 0 {
		opts.Quiet = 100 * time.Millisecond
	}
	if opts.Most <= 0 {
		opts.Most = 500 * time.Millisecond
	}
	if opts.Poll <= 0 {
		opts.Poll = 10 * time.Second
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Folder{
		path: filepath.Clean(path), opts: opts, newNotifier: newNotifier,
		bounds: bounds{MaxFile, MaxTotal, MaxFiles, MaxFolders},
	}
}

// Read reads the folder as it is. A file that cannot be read is in the list with its
// error; the error of Read is that of the folder: it is missing, it or a subfolder may
// not be read, or it is beyond the bounds. A Run that follows takes what Read gave as
// known and reports what differs from it.
func (f *Folder) Read() ([]File, error) {
	list, files, err := f.take(f.scan)
	for range 2 {
		if again, _ := f.scan(); again.same(list) {
			break
		}
		list, files, err = f.take(f.scan) // it changed meanwhile: not a mixture, if that can be had
	}
	f.listing = list
	f.isNew(files, err)
	return files, err
}

// take reads what a scan finds.
func (f *Folder) take(scan func() (listing, error)) (listing, []File, error) {
	list, err := scan()
	if err != nil {
		return list, nil, err
	}
	return list, list.read(f.bounds.file), nil
}

// isNew reports whether a result is to be handed out, being another than the last one,
// and notes it as handed out.
func (f *Folder) isNew(files []File, err error) bool {
	failed, known := f.failure != "", f.handed
	f.handed = true
	if err != nil {
		news := f.failure != err.Error()
		f.failure = err.Error()
		return news
	}
	f.failure = ""
	f.partial = slices.ContainsFunc(files, func(file File) bool { return file.Err != nil })
	digest := digestOf(files)
	news := failed || !known || digest != f.digest
	f.digest = digest
	return news
}

// digestOf is equal for equal names, contents and errors.
func digestOf(files []File) (sum [sha256.Size]byte) {
	h := sha256.New()
	part := func(b []byte) {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(b)))) // a hash never fails to write
		_, _ = h.Write(b)
	}
	for _, file := range files {
		part([]byte(file.Name))
		part(file.Data)
		message := ""
		if file.Err != nil {
			message = file.Err.Error()
		}
		part([]byte(message))
	}
	h.Sum(sum[:0])
	return sum
}
