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

var errChanged = errors.New("it is not what it was when it was listed")

// sourceError is an error that came from reading the source.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

func sourceErr(err error) error {
	if err == nil {
		return nil
	}
	return sourceError{err}
}

// isGone tells whether an entry went away: NFS says ESTALE when that happened
// after it was opened.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESTALE)
}

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

func kindOf(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	}
	return fs.ModeDevice
}

func (c *copier) copyAs(ctx context.Context, p pair, name string, kind fs.FileMode) error {
	switch {
	case kind.IsRegular():
		return c.file(ctx, p, name)
	case kind.IsDir():
		return c.subdirectory(ctx, p, name)
	case kind&fs.ModeSymlink != 0:
		return c.symlink(p, name)
	case kind&(fs.ModeNamedPipe|fs.ModeSocket) != 0:
		return c.special(p, name)
	}
	// A device of the server's or of some node must not come to be in a volume.
	c.progress.devices.Add(1)
	c.progress.entries.Add(-1)
	return nil
}

func (c *copier) subdirectory(ctx context.Context, p pair, name string) (err error) {
	src, err := openDirAt(int(p.src.Fd()), name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return errChanged
	}
	if err != nil {
		return sourceError{err}
	}
	defer src.Close() //nolint:errcheck // only read
	to := int(p.dst.Fd())
	if err := restarted(func() error { return unix.Mkdirat(to, name, 0o700) }); err != nil {
		return &os.PathError{Op: "mkdir", Path: p.join(name), Err: err}
	}
	dst, err := openDirAt(to, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	err = c.directory(ctx, pair{src: src, dst: dst, path: p.join(name)})
	return err
}

func (c *copier) file(ctx context.Context, p pair, name string) error {
	// Without waiting for a writer, should it have become a fifo.
	src, err := openAt(int(p.src.Fd()), name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return errChanged
	}
	if err != nil {
		return sourceError{err}
	}
	defer unix.Close(src) //nolint:errcheck // only read
	st, err := statFD(src, name)
	if err != nil {
		return sourceError{err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errChanged
	}
	if st.Nlink > 1 {
		return c.linkOrFile(ctx, p, name, src, &st)
	}
	return c.newFile(ctx, p, name, src, &st)
}

func (c *copier) linkOrFile(ctx context.Context, p pair, name string, src int, st *unix.Stat_t) error {
	i := inode{uint64(st.Dev), st.Ino} //nolint:unconvert // not the same type on every platform
	for {
		l, isFirst := c.links.first(i, uint64(st.Nlink)) //nolint:unconvert // nor is this
		if isFirst {
			err := c.newFile(ctx, p, name, src, st)
			made := ""
			if err == nil {
				made = p.join(name)
			}
			c.links.done(i, l, made)
			return err
		}
		select {
		case <-l.made:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if l.path != "" {
			return c.to.Link(l.path, p.join(name))
		}
	}
}

// newFile makes the copy of an open file. Whatever goes wrong, fsync and close
// included, fails it; a copy whose source is gone is removed.
func (c *copier) newFile(ctx context.Context, p pair, name string, src int, st *unix.Stat_t) error {
	to := int(p.dst.Fd())
	// Not O_EXCL, which costs NFS another round trip: nobody else is here.
	dst, err := openAt(to, name, unix.O_WRONLY|unix.O_CREAT, st.Mode&permBits)
	if err != nil {
		return err
	}
	err = c.fill(ctx, dst, src, to, name, st)
	if closeErr := unix.Close(dst); err == nil && closeErr != nil {
		err = &os.PathError{Op: "close", Path: p.join(name), Err: closeErr}
	}
	var source sourceError
	if errors.As(err, &source) {
		if rmErr := unix.Unlinkat(to, name, 0); rmErr != nil {
			return fmt.Errorf("remove %s: %w", p.join(name), rmErr)
		}
	}
	return err
}

func (c *copier) fill(ctx context.Context, dst, src, dir int, name string, st *unix.Stat_t) error {
	made, err := statFD(dst, name)
	if err != nil {
		return err
	}
	t := transfer{
		c: c, dst: dst, src: src, name: name, size: st.Size,
		sparse: st.Size > sparseFrom && st.Blocks*blockSize < st.Size,
	}
	if err := t.data(ctx); err != nil {
		return err
	}
	if err := c.xattrs(dst, src, name); err != nil {
		return err
	}
	if t.size > 0 {
		// A full disk may show only here, and data written later would change the
		// times. NFS writes on close in any case.
		if err := restarted(func() error { return unix.Fsync(dst) }); err != nil {
			return &os.PathError{Op: "fsync", Path: name, Err: err}
		}
	}
	return c.setAttributes(dst, dir, name, &made, st)
}

func (c *copier) symlink(p pair, name string) error {
	from, to := int(p.src.Fd()), int(p.dst.Fd())
	st, err := statAt(from, name)
	if err != nil {
		return sourceError{err}
	}
	target, err := readlinkAt(from, name)
	if errors.Is(err, unix.EINVAL) || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return errChanged
	}
	if err != nil {
		return sourceError{err}
	}
	if err := restarted(func() error { return unix.Symlinkat(target, to, name) }); err != nil {
		return &os.PathError{Op: "symlink", Path: p.join(name), Err: err}
	}
	return setAttributesAt(to, name, &st)
}

// special makes a fifo or a socket anew. Neither has content.
func (c *copier) special(p pair, name string) error {
	st, err := statAt(int(p.src.Fd()), name)
	if err != nil {
		return sourceError{err}
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFIFO && kind != unix.S_IFSOCK {
		return errChanged
	}
	to := int(p.dst.Fd())
	if err := restarted(func() error { return unix.Mknodat(to, name, kind|st.Mode&permBits, 0) }); err != nil {
		return &os.PathError{Op: "mknod", Path: p.join(name), Err: err}
	}
	return setAttributesAt(to, name, &st)
}
