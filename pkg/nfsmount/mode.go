package nfsmount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// SetMode implements Mounter.
func (k *Kernel) SetMode(ctx context.Context, e Entry, mode volume.Mode) error {
	// A server that is away is found here, by a question that is asked once.
	if _, err := k.Usage(ctx, e); err != nil {
		return err
	}
	what := fmt.Sprintf("chmod(%s, %s)", e.Target, mode)
	_, err := k.modes.do(ctx, what, k.cfg.CheckTimeout, func() (struct{}, error) {
		return struct{}{}, setMode(e.Target, mode)
	})
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: the server does not let this node give %s mode %s; "+
			"export with no_root_squash, or set the mode on the server: %w", volume.ErrRefused, e.Source, mode, err)
	}
	if kind := usageError(err); err != nil && kind != nil {
		err = fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

// setMode changes the mode of a directory, if it has another one.
func setMode(dir string, mode volume.Mode) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is written through it
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if volume.Mode(st.Mode&0o7777) == mode {
		return nil
	}
	// fchmod(2) takes no O_PATH descriptor, and fchmodat2(2) is of Linux 6.6.
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), uint32(mode)); err != nil {
		return &os.PathError{Op: "chmod " + mode.String(), Path: dir, Err: err}
	}
	return nil
}
