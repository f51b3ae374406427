// Package tree works on whole directory trees of an export, several entries at
// a time, since over a network most of the time is waiting for answers.
package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// batch is how many names of a directory are read before they are removed:
	// a directory may have millions.
	batch = 1024
	// maxRounds bounds how often a directory is read again because it was not
	// empty in the end: reading while removing may skip entries, but more rounds
	// than this mean that somebody is still writing into it.
	maxRounds = 32
)

// Remove removes name in parent and all that is below it with up to workers
// removals at a time, and returns how many entries went. It follows no symlink,
// in no component: every directory is opened from its parent and stays within
// it, whatever is put in its place meanwhile. Entries that are gone already,
// also name itself, are no error. When ctx ends it stops between entries.
func Remove(ctx context.Context, parent *os.Root, name string, workers int) (int64, error) {
	return RemoveWatched(ctx, parent, name, workers, Watch{})
}

// Watch is told of a removal while it goes on, by several goroutines at a time.
// Either may be nil.
type Watch struct {
	// Before is called before each removal; an error ends it all.
	Before func(context.Context) error
	// Found is called with how many more entries are known to be there, which is
	// negative when some are gone.
	Found func(n int64)
}

// RemoveWatched is Remove with somebody who watches it.
func RemoveWatched(ctx context.Context, parent *os.Root, name string, workers int, watch Watch) (int64, error) {
	r := &remover{slots: make(chan struct{}, max(workers-1, 0)), watch: watch}
	info, err := parent.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err == nil {
		r.found(1)
		err = r.remove(ctx, parent, name, info.IsDir())
		r.found(-r.pending.Load()) // whatever is left is found again
	}
	if err != nil {
		return r.removed.Load(), fmt.Errorf("remove %s: %w", name, err)
	}
	return r.removed.Load(), nil
}

type remover struct {
	// slots are the workers beside the calling goroutine.
	slots   chan struct{}
	removed atomic.Int64
	pending atomic.Int64
	watch   Watch
}

func (r *remover) found(n int64) {
	r.pending.Add(n)
	if r.watch.Found != nil {
		r.watch.Found(n)
	}
}

func (r *remover) remove(ctx context.Context, parent *os.Root, name string, isDir bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if isDir {
		return r.directory(ctx, parent, name)
	}
	return r.entry(ctx, parent, name)
}

func (r *remover) entry(ctx context.Context, parent *os.Root, name string) error {
	if r.watch.Before != nil {
		if err := r.watch.Before(ctx); err != nil {
			return err
		}
	}
	err := parent.Remove(name)
	if err == nil {
		r.removed.Add(1)
		r.found(-1)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (r *remover) directory(ctx context.Context, parent *os.Root, name string) error {
	err := r.emptied(ctx, parent, name)
	if isGone(err) {
		// Another controller removes it too, and was faster.
		if _, statErr := parent.Lstat(name); errors.Is(statErr, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

func (r *remover) emptied(ctx context.Context, parent *os.Root, name string) error {
	dir, err := parent.OpenRoot(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	for range maxRounds {
		if err = r.content(ctx, dir); err != nil {
			return err
		}
		if err = r.entry(ctx, parent, name); !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return err
}

// content removes what the directory holds, as far as one reading of it shows.
func (r *remover) content(ctx context.Context, dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(r.listed(ctx, dir, f), f.Close())
}

func (r *remover) listed(ctx context.Context, dir *os.Root, f *os.File) error {
	for {
		entries, readErr := f.ReadDir(batch)
		r.found(int64(len(entries)))
		if err := r.all(ctx, dir, entries); err != nil {
			return err
		}
		// Gone is a directory that another controller empties too.
		if errors.Is(readErr, io.EOF) || errors.Is(readErr, fs.ErrNotExist) {
			return nil
		}
		if readErr != nil {
			return readErr
		}
	}
}

// all removes the entries: a directory by a free worker if there is one, and by
// this goroutine if there is none, so that nested directories cannot use up the
// workers while waiting for each other. What is no directory is removed right
// here: unlink(2) holds its directory locked until the server has answered, and
// others would only wait.
func (r *remover) all(ctx context.Context, dir *os.Root, entries []fs.DirEntry) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	one := func(e fs.DirEntry) {
		if err := r.remove(ctx, dir, e.Name(), e.IsDir()); err != nil {
			mu.Lock()
			defer mu.Unlock()
			first = cmp.Or(first, err)
		}
	}
	for _, e := range entries {
		if !e.IsDir() {
			one(e)
			continue
		}
		select {
		case r.slots <- struct{}{}:
			wg.Go(func() {
				defer func() { <-r.slots }()
				one(e)
			})
		default:
			one(e)
		}
	}
	wg.Wait()
	return first
}
