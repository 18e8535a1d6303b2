package config

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
)

// A notifier tells of changes in the folders that were added to it.
type notifier struct {
	events <-chan fsnotify.Event // closed after close
	errors <-chan error
	add    func(folder string) error
	close  func() error
}

// newNotifier starts the operating system's notifications.
func newNotifier() (notifier, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return notifier{}, err
	}
	return notifier{events: w.Events, errors: w.Errors, add: w.Add, close: w.Close}, nil
}

// A watch keeps notifications on the places of the last listing and turns those that
// matter into touches. One goroutine calls its methods.
type watch struct {
	start func() (notifier, error)
	// touched has room for one touch, which stands for any number.
	touched chan struct{}

	places  places
	current notifier
	forward sync.WaitGroup
	// broken says that not all places are watched; looks in between find what is missed.
	broken bool
	// stale says that a watched folder has come, gone or moved, and that the kernel may
	// be watching what used to be there.
	stale atomic.Bool
}

func newWatch(start func() (notifier, error)) *watch {
	return &watch{start: start, touched: make(chan struct{}, 1), broken: true}
}

// touch notes that something has changed.
func (w *watch) touch() {
	select {
	case w.touched <- struct{}{}:
	default:
	}
}

// covers reports whether the watch is good for these places as they are.
func (w *watch) covers(p places) bool {
	return !w.broken && !w.stale.Load() && w.places.same(p)
}

// renew watches p in place of what was watched. A watch is tied to a folder and not to
// its path, so a fresh notifier is the only one of which one can say what it watches;
// the old one goes once the new one is there, and no change falls between them. The
// error says why changes may go by without a notice.
func (w *watch) renew(p places) error {
	w.stale.Store(false)
	n, err := w.start()
	if err != nil {
		w.broken = true
		return fmt.Errorf("starting notifications: %w", err)
	}
	var errs []error
	for dir := range p {
		err := n.add(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			w.stale.Store(true)
			w.touch() // gone since it was listed: look again
		case errors.Is(err, fs.ErrPermission):
			// A folder on the way that may be passed and not listed.
		case err != nil:
			errs = append(errs, fmt.Errorf("watching %q: %w", dir, err))
		}
	}
	w.stop()
	w.current, w.places = n, p
	w.forward.Go(func() { w.run(n, p) })
	w.broken = len(errs) > 0
	return errors.Join(errs...)
}

// run forwards what matters of the events of n until it is closed.
func (w *watch) run(n notifier, p places) {
	for {
		select {
		case event, ok := <-n.events:
			if !ok {
				return
			}
			matters, folder := p.concern(event.Name)
			if folder {
				w.stale.Store(true)
			}
			if matters {
				w.touch()
			}
		case _, ok := <-n.errors:
			if !ok {
				return
			}
			// Events were lost: too many at once, mostly. Anything may have changed.
			w.stale.Store(true)
			w.touch()
		}
	}
}

// stop ends the notifications and waits for their goroutine.
func (w *watch) stop() {
	if w.current.close != nil {
		_ = w.current.close() // nothing is lost with it
		w.forward.Wait()
	}
	w.current = notifier{}
}
