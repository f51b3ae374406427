package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// ServerTime waits for the next tick of the clock that the file server takes ctimes
// from, and returns its time: changes before the call have an earlier ctime, changes
// after it do not.
func (c *Catalog) ServerTime(ctx context.Context) (now time.Time, err error) {
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
	return fsat.ChangeTime(int(f.Fd()), "")
}
