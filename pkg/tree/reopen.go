package tree

import (
	"context"
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// movedError: another directory has the path of this one.
type movedError struct{ path string }

func (e *movedError) Error() string { return e.path + " was moved or changed while it was read" }

// reopen opens the directory of the last frame, which is above l. If it has moved, and
// cannot be reached by names either, the walk continues further up, and above is nil.
func (w *walker) reopen(ctx context.Context, l *level) (above *level, err error) {
	f, err := w.closed.pop()
	if err != nil {
		return nil, err
	}
	d := descriptors{l.src, l.dst}
	d, err = d.open("..", "..", f.ID)
	if err == nil {
		return w.resume(&f, d, path.Dir(l.path))
	}
	var source sourceError
	if !errors.As(err, &source) {
		return nil, err
	}
	if !w.keepNames {
		return nil, &movedError{path.Dir(l.path)}
	}
	if err := w.closed.push(&f); err != nil {
		return nil, err
	}
	return w.reach(ctx, l)
}

// descriptors of a directory and of its copy, or -1 without one.
type descriptors struct{ src, dst int }

// open opens a directory in both. It returns a sourceError if the directory in the
// source is not the wanted one.
func (d descriptors) open(src, dst string, want identity) (descriptors, error) {
	opened := descriptors{-1, -1}
	fd, err := fsat.Open(d.src, src, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return opened, sourceError{err}
	}
	opened.src = fd
	st, err := fsat.Stat(fd, src)
	if err == nil && identityOf(&st) != want {
		err = &movedError{src}
	}
	if err != nil {
		return opened, errors.Join(sourceError{err}, opened.close())
	}
	if d.dst >= 0 {
		if opened.dst, err = fsat.Open(d.dst, dst, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
			return opened, errors.Join(err, opened.close())
		}
	}
	return opened, nil
}

func (d descriptors) close() error {
	err := unix.Close(d.src)
	if d.dst >= 0 {
		err = errors.Join(err, unix.Close(d.dst))
	}
	return err
}

// resume turns a frame whose directory is open again into a level.
func (w *walker) resume(f *frame, d descriptors, where string) (*level, error) {
	l := &level{
		name: f.name, path: where, id: f.ID, descriptors: d, tries: f.Tries, retries: f.retries,
		want:    unix.Stat_t{Mode: f.Mode, Uid: f.UID, Gid: f.GID, Atim: f.Atim, Mtim: f.Mtim},
		entries: listing{fd: d.src, buf: w.buffer()}, next: f.Next, seen: f.Seen, ended: f.Ended, resumed: true, repeats: w.keepNames, incomplete: f.Incomplete,
	}
	l.count.Store(f.Entries)
	l.bytes.Store(f.Bytes)
	l.missed.Store(f.Missed)
	if l.ended {
		return l, nil
	}
	if err := l.entries.seek(l.next); err != nil {
		return nil, errors.Join(sourceError{err}, l.close())
	}
	return l, nil
}

// reach opens the directory of the last frame by names, from the first level. Below the
// first name that is no longer the same directory, it gives up.
func (w *walker) reach(ctx context.Context, l *level) (above *level, err error) {
	at, depth := w.open[0].descriptors, 0
	leave := func() error {
		if depth == 0 {
			return nil
		}
		return at.close()
	}
	lost := false
	err = w.closed.each(func(f *frame) (bool, error) {
		next, err := at.open(f.name, f.name, f.ID)
		var source sourceError
		if lost = errors.As(err, &source); lost {
			return false, nil
		}
		if err == nil {
			err = leave()
			at, depth = next, depth+1
		}
		return true, err
	})
	switch {
	case err != nil:
		return nil, errors.Join(err, leave())
	case lost:
		return nil, w.giveUp(ctx, l, at, depth)
	}
	f, err := w.closed.pop()
	if err != nil {
		return nil, errors.Join(err, leave())
	}
	return w.resume(&f, at, path.Dir(l.path))
}

// giveUp drops all frames below depth. at is the directory of the last one that stays.
func (w *walker) giveUp(ctx context.Context, l *level, at descriptors, depth int) error {
	dropped := frame{}
	dropped.Entries, dropped.Bytes = l.count.Load(), l.bytes.Load()
	where := l.path
	w.open = w.open[:1]
	err := w.close(l)
	for err == nil && w.closed.depth > depth {
		var f frame
		f, err = w.closed.pop()
		f.Entries, f.Bytes = f.Entries+dropped.Entries, f.Bytes+dropped.Bytes
		dropped, where = f, path.Dir(where)
	}
	if err != nil {
		if depth > 0 {
			err = errors.Join(err, at.close())
		}
		return err
	}
	above := w.open[0]
	if depth > 0 {
		f, err := w.closed.pop()
		if err != nil {
			return errors.Join(err, at.close())
		}
		if above, err = w.resume(&f, at, path.Dir(where)); err != nil {
			return err
		}
		w.open = append(w.open, above)
	}
	return w.visitor.lost(ctx, above, &dropped)
}

// verifyEnd is called when a resumed listing returns nothing. Either it had reached its
// end before, or the offset has become invalid, which an NFS client reports as the end
// as well. It returns io.EOF in the first case and starts the listing over in the
// second.
func (l *level) verifyEnd() error {
	l.resumed = false
	if err := l.entries.seek(0); err != nil {
		return err
	}
	for n := int64(0); n <= l.seen; n++ {
		if _, err := l.entries.next(); err != nil {
			return err
		}
	}
	if !l.repeats {
		return &movedError{l.path}
	}
	return l.entries.seek(0)
}
