package nfsmount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// SetMode implements Mounter.
func (k *Kernel) SetMode(ctx context.Context, e Entry, mode volume.Mode) error {
	// This detects a dead server, by a question that is asked once per server.
	if _, err := k.Usage(ctx, e); err != nil {
		return err
	}
	what := fmt.Sprintf("chmod(%s, %s)", e.Target, mode)
	_, err := k.modes.do(ctx, what, k.cfg.AnswerTimeout, func() (struct{}, error) {
		return struct{}{}, setMode(e.Target, mode)
	})
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: the server does not let this node give %s mode %s; "+
			"export with no_root_squash, or set the mode on the server: %w", volume.ErrRefused, e.Source, mode, err)
	}
	return usageError(err)
}

// setMode changes the mode of a directory unless it has it already.
func setMode(dir string, mode volume.Mode) error {
	fd, err := fsat.Open(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is written through it
	st, err := fsat.Stat(fd, dir)
	if err != nil || volume.Mode(st.Mode&0o7777) == mode {
		return err
	}
	return fsat.Chmod(fd, dir, uint32(mode))
}
