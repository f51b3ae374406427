package store

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A directory that is a share itself holds the volumes of others: it is no volume of
// the share around it, is not made one, and is not deleted as one.
func TestShareWithinAShareIsSpared(t *testing.T) {
	l := newLab(t)
	l.put(t, "team/readme")
	team := volume.Export{Server: l.export.Server, Share: "/export/team"}
	l.fake.AddExport(team, filepath.Join(l.dir, "team"))
	// Adopted before it was a share.
	adopted := l.createAs(t, l.classed("pvc-1", "team", volume.OnDeleteDelete))
	req := l.request("pvc-2")
	req.Params.Export = team
	if _, err := l.Create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	l.put(t, "team/pvc-2/precious")
	spared := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, volume.ErrOwned) {
			t.Errorf("%s: %v, want ErrOwned", what, err)
		}
		if got := l.content(t, "team/pvc-2/precious"); got != "team/pvc-2/precious" {
			t.Errorf("%s leaves %q", what, got)
		}
	}
	spared("delete of the adopted", l.Delete(t.Context(), adopted, nil))
	l.forgetRecord(t, "team")
	legacy := l.id("team")
	spared("delete of a predecessor's", l.Delete(t.Context(), legacy, nil))
	legacy.OnDelete = volume.OnDeleteArchive
	spared("archive of a predecessor's", l.Delete(t.Context(), legacy, nil))
	_, err := l.Create(t.Context(), l.classed("pvc-3", "team", volume.OnDeleteDelete))
	spared("adoption", err)
}

func (l *lab) forgetRecord(t *testing.T, subDir string) {
	t.Helper()
	err := l.onCatalog(t, func(_ *share.Handle, cat *catalog.Catalog) error {
		rec, err := cat.Read(subDir)
		if err != nil {
			return ignoreNone(err)
		}
		return cat.Remove(rec)
	})
	if err != nil {
		t.Fatal(err)
	}
}
