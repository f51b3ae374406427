package store

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// A copy whose staging directory another controller has ended is not put in place,
// however far it has got: the content is being removed.
func TestEndedCopyIsNotPlaced(t *testing.T) {
	l := newLab(t)
	x, release, err := l.exports.Hold(t.Context(), l.anyShare(l.export, "new", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := x.Open(); err != nil {
		t.Fatal(err)
	}
	st, err := newStaging(t.Context(), x, catalog.SnapshotData)
	if err != nil {
		t.Fatal(err)
	}
	from, err := st.openData() // as its owner before the rename
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if err := x.Cat.EndStagings("new", ""); err != nil {
		t.Fatal(err)
	}
	to, err := fsat.MakePlace(x.Root, "new")
	if err != nil {
		t.Fatal(err)
	}
	if err := from.Rename(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was renamed: %v", err)
	}
	if err := st.placeVolume("new"); !errors.Is(err, errSuperseded) {
		t.Errorf("placed: %v, want errSuperseded", err)
	}
}
