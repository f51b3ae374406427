package tree

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// ChangedSince looks for something in the tree that changed at or after a time of
// the file server's clock, and returns its path; "." is the tree's own directory,
// and empty means that nothing did. Whatever happens in a tree changes the ctime
// of a file or a directory, and nobody can set that back. The server is asked
// about each entry, whatever the kernel remembers of it.
func ChangedSince(ctx context.Context, root *os.Root, since time.Time, workers int) (string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return "", err
	}
	defer dir.Close() //nolint:errcheck // only read
	s := &seeker{since: since, workers: max(workers, 1)}
	err = s.directory(ctx, dir, ".")
	var found *changeFound
	if errors.As(err, &found) {
		return found.path, nil
	}
	return "", err
}

// changeFound ends the search.
type changeFound struct{ path string }

func (e *changeFound) Error() string { return e.path + " has changed" }

type seeker struct {
	since   time.Time
	workers int
}

// directory looks at the directory itself first: if it has not changed, its list
// is what it was.
func (s *seeker) directory(ctx context.Context, dir *os.File, name string) error {
	if err := s.check(int(dir.Fd()), "", name); err != nil {
		return err
	}
	for {
		list, err := dir.ReadDir(batch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.entries(ctx, dir, name, list)
		}
		if err != nil {
			return err
		}
	}
}

func (s *seeker) entries(ctx context.Context, dir *os.File, name string, list []os.DirEntry) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(s.workers)
	for _, e := range list {
		group.Go(func() error {
			if err := groupCtx.Err(); err != nil || e.IsDir() {
				return err
			}
			return s.check(int(dir.Fd()), e.Name(), path.Join(name, e.Name()))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		sub, err := openDirAt(int(dir.Fd()), e.Name())
		if isGone(err) {
			return &changeFound{path.Join(name, e.Name())}
		}
		if err != nil {
			return err
		}
		if err := errors.Join(s.directory(ctx, sub, path.Join(name, e.Name())), sub.Close()); err != nil {
			return err
		}
	}
	return nil
}

// check one entry, or the directory itself where it has no name.
func (s *seeker) check(dir int, entry, name string) error {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_STATX_FORCE_SYNC
	if entry == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var st unix.Statx_t
	err := restarted(func() error { return unix.Statx(dir, entry, flags, unix.STATX_CTIME, &st) })
	switch {
	case isGone(err):
		return &changeFound{name}
	case err != nil:
		return &os.PathError{Op: "statx", Path: name, Err: err}
	case !time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)).Before(s.since):
		return &changeFound{name}
	}
	return nil
}
