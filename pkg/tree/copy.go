package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// countAfter is how long a copy runs before it counts how much there is to do.
	countAfter = 2 * time.Second
	// maxChanges bounds how often an entry may become something else between
	// being seen and being opened.
	maxChanges = 8
	// parallelDirs is how many directories are read at a time beside the first.
	parallelDirs = 8
)

// CopyOptions of Copy.
type CopyOptions struct {
	// Workers is how many files are copied at a time.
	Workers int
	// Frozen says that nobody changes the source: what goes away or shrinks during
	// the copy fails it. Otherwise the source may be in use, and that is as if it
	// had happened before.
	Frozen bool
	// Progress is optional.
	Progress *Progress
}

// Copy copies what the directory from holds, and the attributes of the directory
// itself, to the empty directory to. Files share blocks where the file system
// can (FICLONE), are copied by the server where it can (copy_file_range) and read
// and written otherwise. Mode with special bits, owner, times, extended
// attributes of users, hard links, symlinks as such, holes, fifos and sockets
// survive; devices are left out and counted. Whatever does not get to the target
// whole fails the copy, but for what Frozen says.
//
// It follows no symlink and works in no directory but the two and those below.
// Nobody else may write to the target meanwhile.
func Copy(ctx context.Context, from, to *os.Root, opts CopyOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &copier{
		opts: opts, progress: opts.Progress, to: to, cancel: cancel,
		files:   make(chan struct{}, max(opts.Workers, 1)),
		dirs:    make(chan struct{}, parallelDirs),
		buffers: sync.Pool{New: func() any { return new([bufferSize]byte) }},
	}
	if c.progress == nil {
		c.progress = &Progress{}
	}
	if err := c.start(ctx, from); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}

func (c *copier) start(ctx context.Context, from *os.Root) error {
	src, err := from.Open(".")
	if err != nil {
		return sourceError{err}
	}
	dst, err := c.to.Open(".")
	if err != nil {
		return errors.Join(err, src.Close())
	}
	c.src = src
	stop := c.countLater(ctx, from)
	c.fail(c.directory(ctx, pair{src: src, dst: dst, path: "."}))
	stop()
	if err := errors.Join(src.Close(), dst.Close()); err != nil {
		c.fail(err)
	}
	return context.Cause(ctx)
}

// copier is one Copy.
type copier struct {
	opts     CopyOptions
	progress *Progress
	to       *os.Root
	src      *os.File
	cancel   context.CancelCauseFunc // takes the first error, and stops the rest
	files    chan struct{}           // workers for entries that are not directories
	dirs     chan struct{}
	links    links
	buffers  sync.Pool
	// What turned out not to be possible between these file systems.
	noClone, noServerCopy, noXattrs atomic.Bool
}

// pair is a directory of the source and its copy.
type pair struct {
	src, dst *os.File
	path     string // of the copy below copier.to
}

func (p pair) join(name string) string { return path.Join(p.path, name) }

func (c *copier) fail(err error) {
	if err != nil {
		c.cancel(err)
	}
}

// countLater counts the source once the copy turns out to take a while.
func (c *copier) countLater(ctx context.Context, from *os.Root) (stop func()) {
	if c.progress.totalEntries.Load() != 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		timer := time.NewTimer(countAfter)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if bytes, entries, err := Count(ctx, from); err == nil {
			c.progress.SetTotal(bytes, entries)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// directory copies what is in the directory, and when that is done, so that
// nothing changes them any more, its attributes.
func (c *copier) directory(ctx context.Context, p pair) error {
	want, err := statFD(int(p.src.Fd()), p.path)
	if err != nil {
		return sourceError{err}
	}
	var wg sync.WaitGroup
	err = c.content(ctx, &wg, p)
	wg.Wait()
	if err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	dst := int(p.dst.Fd())
	made, err := statFD(dst, p.path)
	if err != nil {
		return err
	}
	if err := c.xattrs(dst, int(p.src.Fd()), p.path); err != nil && !c.wentAway(err) {
		return err
	}
	return c.setAttributes(dst, dst, ".", &made, &want)
}

// content hands out the entries. Files wait for a worker. Directories take
// another goroutine when there is one to take, and this one otherwise: it may
// wait for workers but no worker waits for it.
func (c *copier) content(ctx context.Context, wg *sync.WaitGroup, p pair) error {
	for {
		entries, err := p.src.ReadDir(batch)
		if errors.Is(err, io.EOF) || c.wentAway(sourceErr(err)) {
			return nil
		}
		if err != nil {
			return sourceError{err}
		}
		for _, e := range entries {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			slots := c.files
			if e.IsDir() {
				select {
				case c.dirs <- struct{}{}:
					slots = c.dirs
				default:
					c.fail(c.entry(ctx, p, e.Name(), e.Type()))
					continue
				}
			} else {
				select {
				case c.files <- struct{}{}:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			wg.Go(func() {
				defer func() { <-slots }()
				c.fail(c.entry(ctx, p, e.Name(), e.Type()))
			})
		}
	}
}

// entry copies one entry, whatever it has become since it was listed.
func (c *copier) entry(ctx context.Context, p pair, name string, kind fs.FileMode) error {
	var err error
	for range maxChanges {
		err = c.copyAs(ctx, p, name, kind)
		if !errors.Is(err, errChanged) {
			break
		}
		var st unix.Stat_t
		if st, err = statAt(int(p.src.Fd()), name); err != nil {
			err = sourceError{err}
			break
		}
		kind = kindOf(st.Mode)
		err = fmt.Errorf("%s: %w", p.join(name), errChanged)
	}
	switch {
	case err == nil:
		c.progress.entries.Add(1)
		return nil
	case c.wentAway(err):
		c.progress.gone.Add(1)
		return nil
	}
	return err
}

// wentAway tells whether the error is that of an entry of a source in use that
// went away. That the whole source did is another matter.
func (c *copier) wentAway(err error) bool {
	var source sourceError
	if c.opts.Frozen || !errors.As(err, &source) || !isGone(err) {
		return false
	}
	_, err = statFD(int(c.src.Fd()), ".")
	return err == nil
}
