package store

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// A copy whose operation another controller has ended is not put in its place any
// more, however far its maker has got: it is being removed.
func TestEndedCopyIsNotPlaced(t *testing.T) {
	l := newLab(t)
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	cat, err := catalog.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer cat.Close()
	k := key{l.export, "new"}
	op, err := l.beginOperation(t.Context(), cat, k, catalog.SnapshotData)
	if err != nil {
		t.Fatal(err)
	}
	from, err := op.openData() // its maker is about to rename it
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if err := endOperations(cat, k, ""); err != nil {
		t.Fatal(err)
	}
	to, err := fsat.MakePlace(root, "new")
	if err != nil {
		t.Fatal(err)
	}
	if err := from.Rename(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was renamed: %v", err)
	}
	if err := op.placeVolume(root, "new"); !errors.Is(err, errTaken) {
		t.Errorf("placed: %v, want errTaken", err)
	}
}
