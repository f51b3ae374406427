package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Clock waits until the clock by which the file server notes changes has gone on,
// and returns its time: what changed before the call has an earlier ctime, what
// changes after it none that is earlier.
func (c *Catalog) Clock(ctx context.Context) (now time.Time, err error) {
	name, err := c.TempName("clock")
	if err == nil {
		err = c.writeFile(name, nil)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("clock of the server: %w", err)
	}
	defer func() { err = errors.Join(err, c.meta.Remove(name)) }()
	first, err := c.changedAt(name)
	for now = first; err == nil && !now.After(first); now, err = c.changedAt(name) {
		// Its ctime becomes the server's time.
		if err := errors.Join(ctx.Err(), c.meta.Chmod(name, recordMode)); err != nil {
			return time.Time{}, fmt.Errorf("clock of the server: %w", err)
		}
	}
	return now, err
}

func (c *Catalog) changedAt(name string) (time.Time, error) {
	f, err := c.meta.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close() //nolint:errcheck // only asked for its attributes
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_CTIME, &st); err != nil {
		return time.Time{}, &os.PathError{Op: "statx", Path: name, Err: err}
	}
	return time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)), nil
}

// touch gives an entry of a directory the server's time: a client that does not say
// which time leaves it to the server.
func touch(dir int, name string) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	err := restarted(func() error { return unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return &os.PathError{Op: "utimensat", Path: name, Err: err}
	}
	return nil
}

// changedAt is when an entry of a directory was changed, touched or renamed last. The
// server says that, and nobody can set it.
func changedAt(dir int, name string) (time.Time, error) {
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_STATX_FORCE_SYNC
	var st unix.Statx_t
	if err := restarted(func() error { return unix.Statx(dir, name, flags, unix.STATX_CTIME, &st) }); err != nil {
		return time.Time{}, &os.PathError{Op: "statx", Path: name, Err: err}
	}
	return time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)), nil
}
