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
	// parallelDirs is how many directories are read at a time beside the first.
	parallelDirs = 8
)

// errMet: the target has an entry of that name already.
var errMet = errors.New("the name was listed twice")

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
	// Scratch makes an empty directory on the file system of the target, which nobody
	// else uses and the caller removes afterwards with all that is in it. It is called
	// at most once, and not for every tree. Without it hard links become files of
	// their own, and a tree of more than some 50,000 levels is an error.
	Scratch func() (*os.Root, error)
	// Pause is optional. It is called before each entry and every 32 MiB at most, by
	// several goroutines, and may wait. An error ends the copy.
	Pause func(context.Context) error
	// at is called at named steps, for tests that change the source there. An error is
	// as if reading the source had failed.
	at func(step, name string) error
}

// Copy copies what the directory from holds, and the attributes of the directory
// itself, to the empty directory to. Files share blocks where the file system
// can (FICLONE), are copied by the server where it can (copy_file_range) and read
// and written otherwise. Mode with special bits, owner, times, extended
// attributes of users, hard links, symlinks as such, holes, fifos and sockets
// survive; devices are left out and counted. Whatever does not get to the target
// whole fails the copy, but for what Frozen says.
//
// A file is copied as one reading of it found it, and once, however often its name is
// listed. One that is replaced while it is read is read again; so is a directory.
// Names become hard links of one file if its identity, size and change time were the
// same when each of them was read.
//
// It follows no symlink and works in no directory but the two and those below. Memory
// and descriptors do not depend on the tree. Nobody else may write to the target
// meanwhile.
//
// Errors: ErrChanged, those of Pause, and what the file systems say.
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
	cancel  context.CancelCauseFunc // takes the first error, and stops the rest
	files   chan struct{}           // workers for entries that are not directories
	dirs    chan struct{}
	scratch scratch
	links   links
	names   nameMemory
	buffers sync.Pool
	// What turned out not to be possible between these file systems.
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
	w := walker{visitor: c, named: true, closed: frames{spill: c.spill()}}
	return w.run(ctx, l)
}

// spill makes files for what does not fit into memory.
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

// step is where a test may come in.
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

// countLater counts the source once the copy turns out to take a while.
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
