package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

const (
	// serverCopyFrom is the size from which the server is asked to copy by itself:
	// below, a read and a write take no more round trips and are faster.
	serverCopyFrom = 128 << 10
	// serverCopyChunk is how much the server copies between two checks of ctx.
	serverCopyChunk = 32 << 20
	// sparseFrom is the size from which asking for holes pays off.
	sparseFrom = 64 << 10
	blockSize  = 512 // of st_blocks
)

// transfer copies the content of one file.
type transfer struct {
	c        *copier
	l        *level
	dst, src int
	name     string
	size     int64
	sparse   bool
	// end is how far the target has been written; counted is what progress includes.
	end, counted int64
}

// fill copies content and attributes to the new file. want has the attributes of the
// source.
func (t *transfer) fill(ctx context.Context, want *unix.Stat_t) error {
	made, err := fsat.Stat(t.dst, t.name)
	if err != nil {
		return err
	}
	if made.Nlink == 0 { // removed with its directory
		return &os.PathError{Op: "open", Path: t.l.join(t.name), Err: unix.ENOENT}
	}
	if made.Size != 0 || made.Nlink != 1 {
		return fmt.Errorf("%s: somebody else writes to the copy", t.l.join(t.name))
	}
	if err := t.data(ctx); err != nil {
		return err
	}
	if err := t.c.xattrs(t.dst, t.src, t.name); err != nil {
		return err
	}
	if t.size > 0 {
		// ENOSPC may only show here, and data written later would change the times. NFS
		// writes on close in any case.
		if err := fsat.Restart(func() error { return unix.Fsync(t.dst) }); err != nil {
			return &os.PathError{Op: "fsync", Path: t.name, Err: err}
		}
	}
	return setAttributes(t.dst, t.l.dst, t.name, &made, want)
}

// data copies the content that src had when it was opened. Data appended meanwhile is
// left out, and data truncated meanwhile is missing, which is an error only if the
// source is frozen.
func (t *transfer) data(ctx context.Context) error {
	if t.size == 0 {
		return nil
	}
	if done, err := t.clone(); done || err != nil {
		return err
	}
	for off := int64(0); off < t.size; {
		from, to := t.extent(off)
		reached, err := t.copyRange(ctx, from, to)
		if err != nil {
			return err
		}
		if reached < to {
			if err := t.shrank(reached); err != nil {
				return err
			}
		}
		off = to
	}
	if t.sparse {
		// Truncated data looks like a hole.
		st, err := fsat.Stat(t.src, t.name)
		if err != nil {
			return sourceError{err}
		}
		if err := t.shrank(st.Size); err != nil {
			return err
		}
	}
	if t.end < t.size {
		if err := fsat.Restart(func() error { return unix.Ftruncate(t.dst, t.size) }); err != nil {
			return fmt.Errorf("extend %s: %w", t.name, err)
		}
	}
	t.count(t.size - t.counted) // the holes
	return nil
}

// shrank records that the source is shorter than before.
func (t *transfer) shrank(size int64) error {
	if size >= t.size {
		return nil
	}
	t.size = size
	if t.c.Frozen {
		return sourceError{fmt.Errorf("%s: %w", t.name, io.ErrUnexpectedEOF)}
	}
	return nil
}

func (t *transfer) count(n int64) {
	t.counted += n
	t.l.bytes.Add(n)
	t.c.Progress.bytes.Add(n)
	t.c.Progress.move()
}

// clone makes the target share the source's blocks. File systems that do not support it
// are detected once.
func (t *transfer) clone() (done bool, err error) {
	if t.c.noClone.Load() {
		return false, nil
	}
	err = fsat.Restart(func() error { return unix.IoctlFileClone(t.dst, t.src) })
	switch {
	case err == nil:
		t.count(t.size)
		return true, nil
	case fatal(err):
		return false, fmt.Errorf("clone %s: %w", t.name, err)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOSYS):
		t.c.noClone.Store(true)
	}
	return false, nil
}

// fatal reports whether copying by other means would fail with the same error.
func fatal(err error) bool {
	return isAny(err, unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EIO, unix.EROFS)
}

// extent returns the next range with data at or after off; after the last one, the
// empty range at the end of the file.
func (t *transfer) extent(off int64) (from, to int64) {
	if !t.sparse {
		return off, t.size
	}
	from, err := unix.Seek(t.src, off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) || err == nil && from >= t.size {
		return t.size, t.size
	}
	if err != nil {
		return off, t.size
	}
	to, err = unix.Seek(t.src, from, unix.SEEK_HOLE)
	if err != nil || to <= from {
		to = t.size
	}
	return from, min(to, t.size)
}

// copyRange returns the offset that it has reached, which is less than to at the end of
// the source.
func (t *transfer) copyRange(ctx context.Context, off, to int64) (int64, error) {
	// The server would fill holes that it does not report, as with NFSv3.
	if blind := t.sparse && off == 0 && to == t.size; !blind {
		var err error
		if off, err = t.serverCopy(ctx, off, to); err != nil || off == to {
			return off, err
		}
	}
	return t.readWrite(ctx, off, to)
}

// serverCopy copies with copy_file_range(2) as far as possible.
func (t *transfer) serverCopy(ctx context.Context, off, to int64) (int64, error) {
	for off < to && to-off >= serverCopyFrom && !t.c.noServerCopy.Load() {
		if err := t.c.pause(ctx); err != nil {
			return off, err
		}
		from, at := off, off
		n, err := restart(func() (int, error) {
			return unix.CopyFileRange(t.src, &from, t.dst, &at, int(min(to-off, serverCopyChunk)), 0)
		})
		switch {
		case err == nil && n == 0:
			return off, nil // maybe the end of the file: reading decides
		case fatal(err):
			return off, fmt.Errorf("copy %s: %w", t.name, err)
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOSYS):
			t.c.noServerCopy.Store(true)
			return off, nil
		case err != nil:
			return off, nil //nolint:nilerr // readWrite copies the rest or returns the error
		}
		off = t.advance(off, n)
	}
	return off, nil
}

func (t *transfer) readWrite(ctx context.Context, off, to int64) (int64, error) {
	buf := t.c.buffers.Get().(*[bufferSize]byte)
	defer t.c.buffers.Put(buf)
	for off < to {
		if err := t.c.pause(ctx); err != nil {
			return off, err
		}
		if err := t.c.step("read", t.l.join(t.name)); err != nil {
			return off, err
		}
		n, err := restart(func() (int, error) { return unix.Pread(t.src, buf[:min(to-off, bufferSize)], off) })
		if err != nil {
			return off, sourceError{fmt.Errorf("read %s: %w", t.name, err)}
		}
		if n == 0 {
			return off, nil
		}
		if t.sparse && zero(buf[:n]) {
			// NFSv3 does not report holes.
			t.count(int64(n))
			off += int64(n)
			continue
		}
		if err := writeAll(t.dst, buf[:n], off); err != nil {
			return off, fmt.Errorf("write %s: %w", t.name, err)
		}
		off = t.advance(off, n)
	}
	return off, nil
}

func (t *transfer) advance(off int64, n int) int64 {
	t.count(int64(n))
	t.end = off + int64(n)
	return t.end
}

func zero(b []byte) bool {
	return len(b) > 0 && b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}

func writeAll(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := restart(func() (int, error) { return unix.Pwrite(fd, b, off) })
		if err != nil {
			return err
		}
		if n <= 0 {
			return io.ErrShortWrite
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}
