package nfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/store/reclaim"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// made is a volume of the driver's, to be filled and deleted.
func made(t *testing.T, s *store.Store, e volume.Export, name, version string, onDelete volume.OnDelete) volume.ID {
	t.Helper()
	req := request(e, name, version, nil)
	req.Params.OnDelete = onDelete
	v, err := s.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return v.ID
}

func remove(t *testing.T, s *store.Store, id volume.ID) {
	t.Helper()
	if err := s.Delete(t.Context(), id, nil); err != nil {
		t.Errorf("delete %s: %v", id.Name, err)
	}
}

// inTrash is nil when no deleted volume of that name is left.
func inTrash(dir, name string) error {
	found, err := filepath.Glob(filepath.Join(dir, ".nfs-csi/trash", name+"*"))
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%q are left", found)
	}
	return err
}

// locked makes a tree with directories that nobody may write to, as Go's module
// cache has them, of one user on the server's own disk.
func locked(t *testing.T, dir string, uid int, mode os.FileMode) {
	t.Helper()
	deep := filepath.Join(dir, "pkg/mod/cache@v1/a/b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	var dirs []string
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if entry.IsDir() {
			dirs = append(dirs, name)
			for _, file := range []string{"go.mod", "x.go"} {
				err = errors.Join(err, os.WriteFile(filepath.Join(name, file), nil, 0o444), os.Lchown(filepath.Join(name, file), uid, uid))
			}
		}
		return err
	})
	for _, name := range dirs {
		err = errors.Join(err, os.Lchown(name, uid, uid), os.Chmod(name, mode))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// squashes are what a server makes of root, and the user that it becomes.
func squashes() map[string]int {
	return map[string]int{"rw,root_squash": 65534, "rw,all_squash,anonuid=1234,anongid=1234": 1234}
}

// What its owner has locked is deleted, and archived with the mode that it had.
func TestReclaimOfLockedDirectories(t *testing.T) {
	versions(t, func(t *testing.T, disk, version string) {
		for options, uid := range squashes() {
			e, dir := export(t, disk, options, 0o777)
			s := newStore(t)
			for _, mode := range []os.FileMode{0o555, 0} {
				name := fmt.Sprintf("locked-%o", mode)
				id := made(t, s, e, name, version, volume.OnDeleteDelete)
				locked(t, filepath.Join(dir, name), uid, mode)
				remove(t, s, id)
				remove(t, s, id)
				eventually(t, 20*time.Second, options+": the trash is reclaimed", func() error { return inTrash(dir, name) })
			}
			// Also a clone, which has the mode of its source.
			source := made(t, s, e, "source", version, volume.OnDeleteDelete)
			locked(t, filepath.Join(dir, "source"), uid, 0o555)
			cloned, err := s.Create(t.Context(), request(e, "clone", version, &store.Source{Volume: &source}))
			if err != nil {
				t.Fatalf("%s: %v", options, err)
			}
			if mode, _, _ := owner(t, filepath.Join(dir, "clone")); mode != 0o555 {
				t.Errorf("%s: the clone has mode %s", options, mode)
			}
			remove(t, s, cloned.ID)
			id := made(t, s, e, "archived", version, volume.OnDeleteArchive)
			locked(t, filepath.Join(dir, "archived"), uid, 0o555)
			remove(t, s, id)
			archive := filepath.Join(dir, "archived-archived")
			if mode, _, _ := owner(t, archive); mode != 0o555 {
				t.Errorf("%s: the archive has mode %s", options, mode)
			}
			if _, err := os.Stat(filepath.Join(archive, "pkg/mod/cache@v1/a/b/go.mod")); err != nil {
				t.Error(err)
			}
		}
	})
}

// What the driver may not remove shows in the backlog and in the health of the
// volumes of the export, until it may.
func TestReclaimReportsItsBacklog(t *testing.T) {
	versions(t, func(t *testing.T, disk, version string) {
		e, dir := export(t, disk, "rw,root_squash", 0o777)
		s := newStore(t)
		id, alive := made(t, s, e, "refused", version, volume.OnDeleteDelete), made(t, s, e, "alive", version, volume.OnDeleteDelete)
		at := filepath.Join(dir, "refused")
		locked(t, at, 65534, 0o755)
		theirs := filepath.Join(at, "pkg/mod")
		if err := os.Lchown(theirs, 4321, 4321); err != nil {
			t.Fatal(err)
		}
		remove(t, s, id)
		health := func(want int, text string) error {
			conditions, err := s.Health(t.Context(), alive, nil)
			page, listErr := s.ListHealth(t.Context(), 0, "")
			if err := errors.Join(err, listErr); err != nil {
				return err
			}
			if len(conditions) != want || len(page.Volumes) != want || want > 0 &&
				(conditions[0].Reason != "DeletedVolumesRemain" || !strings.Contains(conditions[0].Message, text)) {
				return fmt.Errorf("the health is %v, in the list %v", conditions, page.Volumes)
			}
			if late := s.Backlog()[0].Late; late.Refused != int64(want) {
				return fmt.Errorf("late are %+v", late)
			}
			return nil
		}
		eventually(t, 10*time.Second, "the volume that remains is told of", func() error { return health(1, "/pkg/mod/") })
		found, err := filepath.Glob(filepath.Join(dir, ".nfs-csi/trash/refused.*/*"))
		if err != nil || len(found) != 1 || filepath.Base(found[0]) != "pkg" {
			t.Errorf("left are %q, %v, want what somebody else owns", found, err)
		}
		remove(t, s, made(t, s, e, "other", version, volume.OnDeleteDelete))
		eventually(t, 5*time.Second, "another volume is reclaimed", func() error { return inTrash(dir, "other") })
		if err := os.Lchown(filepath.Join(found[0], "mod"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "it is reclaimed in the end", func() error { return errors.Join(inTrash(dir, "refused"), health(0, "")) })
	})
}

// Controllers that empty one trash together are in nobody's way.
func TestControllersReclaimTogether(t *testing.T) {
	for version, disk := range clientVersions() {
		t.Run(version, func(t *testing.T) {
			e, dir := export(t, disk, "rw,no_root_squash", 0o777)
			stores := controllers(t, 3, version)
			id := made(t, stores[0], e, "shared", version, volume.OnDeleteDelete)
			for i := range 10 {
				at := filepath.Join(dir, "shared", fmt.Sprint(i), strings.Repeat("d/", 40))
				if err := os.MkdirAll(at, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range stores {
				remove(t, s, id)
			}
			eventually(t, 30*time.Second, "the trash is reclaimed", func() error { return inTrash(dir, "shared") })
			for _, s := range stores {
				eventually(t, 10*time.Second, "it knows", func() error {
					for _, b := range s.Backlog() {
						if b.Trees != 0 || b.Late != (reclaim.Late{}) {
							return fmt.Errorf("backlog %+v", b)
						}
					}
					return nil
				})
			}
		})
	}
}

// A deleted volume that a pod goes on writing to, over a mount of it, holds up no
// other.
func TestReclaimOfDirectoriesWrittenTo(t *testing.T) {
	for version, disk := range clientVersions() {
		t.Run(version, func(t *testing.T) {
			e, dir := export(t, disk, "rw,no_root_squash", 0o777)
			s := newStore(t)
			id, other := made(t, s, e, "busy", version, volume.OnDeleteDelete), made(t, s, e, "other", version, volume.OnDeleteDelete)
			for i := range 3000 {
				if err := os.WriteFile(filepath.Join(dir, "busy", fmt.Sprint("old-", i)), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			writer := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while :; do i=$((i+1)); : >new-$i; done 2>/dev/null")
			writer.Dir = mounted(t, volume.Export{Server: e.Server, Share: filepath.Join(dir, "busy")}, version, "nosharecache")
			if err := writer.Start(); err != nil {
				t.Fatal(err)
			}
			remove(t, s, id)
			eventually(t, 20*time.Second, "it is emptied while it is filled", func() error {
				if s.Backlog()[0].Removed < 20 {
					return errors.New("it is not")
				}
				return nil
			})
			remove(t, s, other)
			eventually(t, 10*time.Second, "the other one is reclaimed", func() error { return inTrash(dir, "other") })
			if inTrash(dir, "busy") == nil {
				t.Error("the one that is written to is gone")
			}
			if err := writer.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = writer.Wait()
			eventually(t, 60*time.Second, "in the end it is gone", func() error { return inTrash(dir, "busy") })
		})
	}
}
