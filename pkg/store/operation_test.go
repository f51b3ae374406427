package store

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
)

// Whoever makes a volume has its operation open, wherever another controller
// moves it: what the reclaimer removes there must not get to the volume's place.
func TestEndedOperationIsNotPutInItsPlace(t *testing.T) {
	l := newLab(t)
	k := key{l.export, "clone"}
	err := l.withVolume(t.Context(), k, l.thisShare(l.export, nil), func(ctx context.Context, h *share.Handle) error {
		return withCatalog(h, func(cat *catalog.Catalog) error {
			op, err := l.beginOperation(ctx, cat, k, catalog.SnapshotData)
			if err != nil {
				return err
			}
			from, err := op.openData()
			if err != nil {
				return err
			}
			defer from.close()
			if err := endOperations(cat, k, ""); err != nil {
				return err
			}
			to, err := makePlace(h.Root(), k.subDir)
			if err != nil {
				return err
			}
			if err := rename(from, to); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("put in its place: %v", err)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
