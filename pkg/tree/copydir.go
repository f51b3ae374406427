package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// entry implements visitor. A directory gets a goroutine of its own if one is free, and
// this one otherwise: it may wait for workers, but no worker waits for it.
func (c *copier) entry(ctx context.Context, l *level, e item) (down *level, err error) {
	if err := c.pause(ctx); err != nil {
		return nil, err
	}
	c.Progress.move()
	if err := c.step("listed", l.join(e.name)); err != nil {
		return nil, err
	}
	if e.tries == 0 {
		var settle bool
		if e.fresh, settle = l.names.isNew(e.name); settle {
			l.work.Wait()
		}
	}
	if e.kind == fs.ModeIrregular {
		if e.kind, err = c.kindNow(l, e.name); err != nil {
			return nil, c.unlessGone(l, err)
		}
	}
	if e.kind.IsDir() {
		return c.directory(ctx, l, e)
	}
	select {
	case c.files <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l.work.Go(func() {
		defer func() { <-c.files }()
		c.fail(c.nonDirectory(ctx, l, e))
	})
	return nil, nil
}

func (c *copier) directory(ctx context.Context, l *level, e item) (*level, error) {
	down, err := c.enter(l, e)
	switch {
	case err == nil:
	case errors.Is(err, errListedTwice):
		return nil, nil
	case c.retriable(err):
		return nil, l.retryLater(e.name, e.tries)
	default:
		return nil, err
	}
	select {
	case c.dirs <- struct{}{}:
	default:
		return down, nil
	}
	l.work.Go(func() {
		defer func() { <-c.dirs }()
		err := c.walk(ctx, down)
		if err == nil {
			err = c.returned(ctx, l, down)
		}
		c.fail(errors.Join(err, down.close()))
	})
	return nil, nil
}

// enter opens a directory and creates its copy.
func (c *copier) enter(l *level, e item) (down *level, err error) {
	down, err = openLevel(l, e.name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, ErrChanged
	}
	if err != nil {
		return nil, sourceError{err}
	}
	down.tries, down.names.memory = e.tries, &c.names
	if err = e.make(func() error { return unix.Mkdirat(l.dst, e.name, 0o700) }); err != nil {
		return nil, errors.Join(&os.PathError{Op: "mkdir", Path: down.path, Err: err}, down.close())
	}
	if down.dst, err = fsat.Open(l.dst, e.name, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
		return nil, errors.Join(err, down.close())
	}
	return down, nil
}

// unreadable implements visitor.
func (c *copier) unreadable(l *level, err error) error {
	err = sourceError{fmt.Errorf("%s: %w", l.path, err)}
	if !c.retriable(err) {
		return err
	}
	l.missed.Store(true)
	l.incomplete = true
	return nil
}

// leave implements visitor. It sets the attributes of the copy, which is complete.
func (c *copier) leave(_ context.Context, l *level) error {
	err := c.step("leave", l.path)
	if err == nil {
		err = c.xattrs(l.dst, l.src, l.path)
	}
	if err != nil && !c.retriable(err) {
		return err
	}
	if err != nil {
		l.missed.Store(true)
		l.incomplete = true
	}
	if l.missed.Load() && l.name == "" && !l.alive() {
		return sourceError{fmt.Errorf("the directory itself was removed: %w", fs.ErrNotExist)}
	}
	made, err := fsat.Stat(l.dst, l.path)
	if err != nil {
		return err
	}
	return setAttributes(l.dst, l.dst, ".", &made, &l.want)
}

// returned implements visitor. The directory counts as copied if all of it was read, or
// if its name still refers to it.
func (c *copier) returned(ctx context.Context, above, l *level) error {
	if l.missed.Load() {
		whole, err := c.still(above, l)
		if err != nil {
			return err
		}
		if !whole {
			f := l.frame()
			return c.lost(ctx, above, &f)
		}
	}
	above.count.Add(l.count.Load() + 1)
	above.bytes.Add(l.bytes.Load())
	c.Progress.entries.Add(1)
	return nil
}

// still reports whether entries were missing because they were removed, and not because
// the directory itself was replaced.
func (c *copier) still(above, l *level) (bool, error) {
	if l.incomplete || !l.alive() {
		return false, nil
	}
	st, err := fsat.LstatNow(above.src, l.name)
	if fsat.IsGone(err) {
		return false, nil
	}
	if err != nil {
		return false, sourceError{err}
	}
	return identityOf(&st) == l.id, nil
}

// lost implements visitor: it removes what was copied of the directory and has its name
// looked up again.
func (c *copier) lost(ctx context.Context, above *level, f *frame) error {
	if c.Frozen {
		return sourceError{&movedError{above.join(f.name)}}
	}
	if err := removeAt(ctx, above.dst, f.name, cap(c.files)); err != nil {
		return err
	}
	c.Progress.entries.Add(-f.Entries)
	c.Progress.bytes.Add(-f.Bytes)
	return above.retryLater(f.name, f.Tries)
}

// removeAt removes an entry of a directory of the target.
func removeAt(ctx context.Context, dir int, name string, workers int) error {
	fd, err := fsat.Duplicate(dir)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close() //nolint:errcheck // only read
	_, err = Removal{Workers: workers}.Remove(ctx, f, name)
	return err
}
