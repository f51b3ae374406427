package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// errListedTwice: the target already has an entry of that name.
var errListedTwice = errors.New("the name was listed twice")

// longCall is the minimum duration of a call that spans a restart of the server.
const longCall = 5 * time.Second

// make calls do, which creates the entry in the target. If the name exists, it was
// listed twice: errListedTwice. If it cannot have existed, the server has created it
// and the request was retransmitted after a restart. If that cannot be told apart,
// EEXIST is an error.
func (e item) make(do func() error) error {
	began := time.Now()
	err := fsat.Restart(do)
	switch {
	case !errors.Is(err, fs.ErrExist):
		return err
	case e.fresh:
		return nil
	case time.Since(began) < longCall:
		return errListedTwice
	}
	return err
}

// newFile copies an open file. Any error, of fsync and close as well, fails the copy; a
// partial copy whose source is gone is removed.
func (c *copier) newFile(ctx context.Context, l *level, e item, src int, st *unix.Stat_t) error {
	name, flags := e.name, unix.O_WRONLY|unix.O_CREAT|unix.O_NONBLOCK
	if !e.fresh {
		flags |= unix.O_EXCL // a name may be listed twice
	}
	dst, err := fsat.Open(l.dst, name, flags, st.Mode&permBits)
	if err != nil {
		if errors.Is(err, fs.ErrExist) { // not of a retransmission, which the client recognizes
			return errListedTwice
		}
		return err
	}
	t := transfer{
		c: c, l: l, dst: dst, src: src, name: name, size: st.Size,
		sparse: st.Size > sparseFrom && st.Blocks*blockSize < st.Size,
	}
	err = t.fill(ctx, st)
	if closeErr := unix.Close(dst); err == nil && closeErr != nil {
		err = &os.PathError{Op: "close", Path: l.join(name), Err: closeErr}
	}
	var source sourceError
	if errors.As(err, &source) {
		t.count(-t.counted)
		if rmErr := fsat.Unlink(l.dst, name); rmErr != nil {
			return fmt.Errorf("remove %s: %w", l.join(name), rmErr)
		}
	}
	return err
}
