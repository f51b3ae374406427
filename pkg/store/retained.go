package store

import (
	"context"
	"errors"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	// retainedTTL is how long the note of an existing retained directory is kept. A cluster
	// restored from a backup repeats a DeleteVolume that late at most.
	retainedTTL = 365 * 24 * time.Hour
	// sweepLimit is how many notes one upkeep checks.
	sweepLimit = 500
)

// sweepRetained removes some of the notes that are expired or whose directory is gone.
// clock is the server's, as are the times of the notes.
func (u *upkeep) sweepRetained(ctx context.Context, x *session.Session, clock func(context.Context) (time.Time, error)) (err error) {
	var now time.Time
	u.after, err = x.Cat.SweepRetained(u.after, sweepLimit, func(r catalog.Record, written time.Time) (keep bool, err error) {
		if now.IsZero() { // asking for the time takes several calls to the server
			if now, err = clock(ctx); err != nil {
				return true, err
			}
		}
		exists, _, err := fsat.DirectoryNow(x.Root, r.SubDir)
		if errors.Is(err, volume.ErrOwned) {
			exists, err = true, nil // something else has its name
		}
		return exists && now.Sub(written) < retainedTTL, errors.Join(err, ctx.Err())
	})
	return err
}
