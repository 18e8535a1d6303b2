package config

import (
	"context"
	"log/slog"
)

// Run watches the folder until ctx is done, and returns nil then, with all that it
// started ended. It calls changed, one call at a time and in its own goroutine, within a
// second of a change of what Read would give:
//
//   - with the files, if any name, content or error of a file differs from what was last
//     given, and after an error of the folder even if none does;
//   - with no files and the error, if the folder cannot be read. It is told once, until
//     the error changes. What was read before should stay in force: the rules of a folder
//     that is missing for a moment are not wanted gone. An empty folder is no error.
//
// It needs no notifications to work, only to be quick: without them it looks every
// FolderOptions.Poll. A receive on reload (which may be nil) makes it look at once.
func (f *Folder) Run(ctx context.Context, reload <-chan struct{}, changed func([]File, error)) error {
	r := runner{folder: f, watch: newWatch(f.newNotifier), changed: changed}
	defer r.watch.stop()
	if !r.look(false) {
		r.watch.touch()
	}
	p := pace{quiet: f.opts.Quiet, most: f.opts.Most, poll: f.opts.Poll, moved: r.moved, look: r.look}
	p.run(ctx, r.watch.touched, reload)
	return nil
}

// A runner is one Run.
type runner struct {
	folder  *Folder
	watch   *watch
	changed func([]File, error)
	// deaf says that the log was told of missing notifications.
	deaf bool
}

// scan looks at the folder and sees to it that the places found are watched: what
// changes after the listing is a touch, or is in the listing already.
func (r *runner) scan() (listing, error) {
	list, err := r.folder.scan()
	if r.watch.covers(list.places) {
		return list, err
	}
	r.report(r.watch.renew(list.places))
	list, err = r.folder.scan()
	if !r.watch.places.same(list.places) {
		r.watch.touch()
	}
	return list, err
}

// report tells the log when notifications stop and start to work.
func (r *runner) report(err error) {
	log, poll := r.folder.opts.Log, r.folder.opts.Poll
	switch {
	case err != nil && !r.deaf:
		log.Warn("rules folder is not watched, looking at it from time to time",
			slog.Duration("every", poll), slog.Any("error", err))
	case err == nil && r.deaf:
		log.Info("rules folder is watched again")
	}
	r.deaf = err != nil
}

// moved reports whether a change went by without a touch. Whether a file that could not
// be read can be now is not to be seen from a listing.
func (r *runner) moved() bool {
	list, err := r.scan()
	if err != nil {
		return err.Error() != r.folder.failure
	}
	return r.folder.failure != "" || r.folder.partial || !list.same(r.folder.listing)
}

// look reads the folder and hands out what is new. It reports false, and hands out
// nothing, if the folder changed meanwhile, unless it is the last try.
func (r *runner) look(last bool) bool {
	f := r.folder
	list, files, err := f.take(r.scan)
	if again, _ := f.scan(); !last && !again.same(list) {
		return false
	}
	f.listing = list
	if f.isNew(files, err) {
		r.changed(files, err)
	}
	return true
}
