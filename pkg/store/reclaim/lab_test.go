package reclaim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// lab is a Reclaimer on a fake export.
type lab struct {
	*Reclaimer
	target session.Target
	dir    string // the export on the server
}

func newLab(t *testing.T, cfg Config) *lab {
	t.Helper()
	l := &lab{dir: t.TempDir(), target: session.Target{Key: session.Key{Export: volume.Export{Server: "nfs.test", Share: "/export"}}}}
	fake := nfsmounttest.NewFake()
	fake.AddExport(l.target.Key.Export, l.dir)
	shares, err := share.New(t.Context(), share.Config{Mounter: fake, Dir: t.TempDir(), IdleTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Exports = session.New(session.Config{
		Shares: shares, Opened: func(session.Target) {},
		Step: func(ctx context.Context, _ string) error { return ctx.Err() },
	})
	cfg.Workers, cfg.Debounce = 4, max(cfg.Debounce, time.Nanosecond)
	if cfg.Upkeep == nil {
		cfg.Upkeep = func(context.Context, *session.Session, func() bool) {}
	}
	if l.Reclaimer, err = New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		cfg.Exports.Wait()
		if err := shares.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := l.onCatalog(t, func(x *session.Session) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return l
}

// onCatalog makes the catalog if there is none.
func (l *lab) onCatalog(t *testing.T, do func(*session.Session) error) error {
	return l.cfg.Exports.Do(t.Context(), l.target, func(_ context.Context, x *session.Session) error { return do(x) })
}

// put writes a file on the server.
func (l *lab) put(t *testing.T, name string) {
	t.Helper()
	at := filepath.Join(l.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// fill makes a tree with a number of files in tmp.
func (l *lab) fill(t *testing.T, name string, files int) string {
	t.Helper()
	for i := range files {
		l.put(t, filepath.Join(".nfs-csi/tmp", name, fmt.Sprint(i)))
	}
	return name
}

// discard moves a tree from tmp to the trash, as the deletion of a volume does.
func (l *lab) discard(t *testing.T, name string) {
	t.Helper()
	if err := l.onCatalog(t, func(x *session.Session) error { return x.Cat.DiscardQuarantined(name, name) }); err != nil {
		t.Fatal(err)
	}
	l.Kick(l.target)
}

// inTrash is how many trees of that name are in the trash.
func (l *lab) inTrash(t *testing.T, name string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(l.dir, ".nfs-csi/trash", name+".*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}
