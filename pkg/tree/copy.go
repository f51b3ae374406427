package tree

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// countAfter is how long a copy runs before it counts how much there is to do.
	countAfter = 2 * time.Second
	// parallelDirs is how many directories are read concurrently in addition to the first.
	parallelDirs = 8
	// bufferSize is how much of a file is read at a time.
	bufferSize = 256 << 10
)

// CopyOptions are the options of Copy.
type CopyOptions struct {
	// Workers is how many files are copied at a time.
	Workers int
	// Frozen says that the source must not change: an entry that is removed or
	// shrinks during the copy fails it. Otherwise the source may be in use, and such
	// a change counts as made before the copy.
	Frozen bool
	// Progress is optional.
	Progress *Progress
	// Scratch makes an empty directory on the file system of the target. Nobody else
	// uses it, and the caller removes it with its content after the copy. It is called
	// at most once, and only if needed. Without Scratch, hard links become separate
	// files, and a tree of more than some 50,000 levels is an error.
	Scratch func() (*os.Root, error)
	// Pause is optional. It is called before each entry and at least every 32 MiB,
	// concurrently, and may block. An error ends the copy.
	Pause func(context.Context) error
	// at is called at named steps, for tests that change the source there. Its error
	// counts as a read error of the source.
	at func(step, name string) error
}

// Copy copies the content of the directory from, and the attributes of the directory
// itself, to the empty directory to. Files share blocks if the file system supports it
// (FICLONE), are copied by the server if it supports that (copy_file_range), and are
// read and written otherwise. Mode with special bits, owner, times, user extended
// attributes, hard links, symlinks, holes, fifos and sockets are preserved; devices are
// skipped and counted. Anything that cannot be copied completely fails the copy, except
// as described for Frozen.
//
// Each file is copied once, however often readdir(3) lists its name. A file or directory
// that is replaced while it is read is read again. Names become hard links of one file
// if its identity, size and change time were the same when each of them was read.
//
// Copy follows no symlink and stays within the two directories. Memory and descriptors
// do not depend on the tree. Nobody else may write to the target meanwhile.
//
// Errors: ErrChanged, those of Pause and of the file systems.
func Copy(ctx context.Context, from, to *os.Root, opts CopyOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := newCopier(opts, cancel)
	if err := c.copy(ctx, from, to); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}

func newCopier(opts CopyOptions, cancel context.CancelCauseFunc) *copier {
	c := &copier{
		CopyOptions: opts, cancel: cancel,
		files:   make(chan struct{}, max(opts.Workers, 1)),
		dirs:    make(chan struct{}, parallelDirs),
		scratch: scratch{make: opts.Scratch},
		names:   nameMemory{seed: maphash.MakeSeed(), max: maxNames},
		buffers: sync.Pool{New: func() any { return new([bufferSize]byte) }},
	}
	if c.Progress == nil {
		c.Progress = &Progress{}
	}
	return c
}

// copier is one Copy.
type copier struct {
	CopyOptions
	cancel  context.CancelCauseFunc // records the first error and stops all goroutines
	files   chan struct{}           // workers for entries that are not directories
	dirs    chan struct{}
	scratch scratch
	links   links
	names   nameMemory
	buffers sync.Pool
	// Set once the operation has turned out to be unsupported.
	noClone, noServerCopy, noXattrs atomic.Bool
}

func (c *copier) copy(ctx context.Context, from, to *os.Root) error {
	top, err := openTop(from, to)
	if err != nil {
		return err
	}
	top.names.memory = &c.names
	stop := c.countLater(ctx, from)
	c.fail(c.walk(ctx, top))
	stop()
	c.fail(errors.Join(top.close(), c.scratch.close()))
	return context.Cause(ctx)
}

func (c *copier) walk(ctx context.Context, l *level) error {
	w := walker{visitor: c, keepNames: true, closed: frames{spill: c.spill()}}
	return w.run(ctx, l)
}

// spill returns how to make files for what does not fit into memory.
func (c *copier) spill() func() (*os.File, error) {
	if c.Scratch == nil {
		return nil
	}
	return c.scratch.file
}

func (c *copier) fail(err error) {
	if err != nil {
		c.cancel(err)
	}
}

// step is a hook for tests.
func (c *copier) step(step, name string) error {
	if c.at == nil {
		return nil
	}
	if err := c.at(step, name); err != nil {
		return sourceError{err}
	}
	return nil
}

func (c *copier) pause(ctx context.Context) error {
	if c.Pause == nil {
		return ctx.Err()
	}
	return c.Pause(ctx)
}

// countLater counts the source once the copy has run for countAfter.
func (c *copier) countLater(ctx context.Context, from *os.Root) (stop func()) {
	if c.Progress.totalEntries.Load() != 0 {
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
		if bytes, entries, err := count(ctx, from, c.spill()); err == nil {
			c.Progress.SetTotal(bytes, entries)
		}
	})
	return func() { cancel(); wg.Wait() }
}
