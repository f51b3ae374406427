package copies

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A copy whose staging directory another controller has ended is not put in place,
// however far it has got: the content is being removed.
func TestEndedCopyIsNotPlaced(t *testing.T) {
	fake, export := nfsmounttest.NewFake(), volume.Export{Server: "nfs.test", Share: "/export"}
	fake.AddExport(export, t.TempDir())
	shares, err := share.New(t.Context(), share.Config{Mounter: fake, Dir: t.TempDir(), IdleTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer shares.Close(context.WithoutCancel(t.Context()))
	exports := session.New(session.Config{
		Shares: shares, Opened: func(session.Target) {},
		Step: func(ctx context.Context, _ string) error { return ctx.Err() },
	})
	x, release, err := exports.Hold(t.Context(), session.Target{Key: session.Key{Export: export, SubDir: "new"}})
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
