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
	// retainedFor is how long the note of a retained directory is kept while the
	// directory is there. DeleteVolume comes again that late at most: by a cluster that
	// was restored from its oldest backup.
	retainedFor = 365 * 24 * time.Hour
	// sweepAtATime is how many notes are looked at in one upkeep of an export.
	sweepAtATime = 500
)

// sweepRetained removes notes of directories that are gone, and old ones, as far as one
// sweep gets. The clock is that of the server, which notes when they were written.
func (u *upkeep) sweepRetained(ctx context.Context, x *session.Session, clock func(context.Context) (time.Time, error)) (err error) {
	var now time.Time
	u.after, err = x.Cat.SweepRetained(u.after, sweepAtATime, func(r catalog.Record, written time.Time) (keep bool, err error) {
		if now.IsZero() { // to ask for the time takes a few calls of the server
			if now, err = clock(ctx); err != nil {
				return true, err
			}
		}
		there, _, err := fsat.DirectoryNow(x.Root, r.SubDir)
		if errors.Is(err, volume.ErrOwned) {
			there, err = true, nil // something else is in its place
		}
		return there && now.Sub(written) < retainedFor, errors.Join(err, ctx.Err())
	})
	return err
}
