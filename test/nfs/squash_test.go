package nfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// export makes a directory of the lab's export one of its own, with options.
func export(t *testing.T, disk, options string, mode os.FileMode) (volume.Export, string) {
	t.Helper()
	if os.Getenv("LAB") == "" {
		t.Skip("needs the lab: make test-nfs")
	}
	unix.Umask(0)
	dir, err := os.MkdirTemp(os.Getenv(disk), "squash-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return exportDir(t, dir, options), dir
}

// exportDir exports a directory.
func exportDir(t *testing.T, dir, options string) volume.Export {
	t.Helper()
	// An export within another is one of its own to NFS 4 only at a mount.
	run(t, "mount", "--bind", dir, dir)
	t.Cleanup(func() { run(t, "umount", "--lazy", dir) })
	where := "*:" + dir
	run(t, "exportfs", "-o", options+",no_subtree_check,insecure,fsid="+fmt.Sprint(time.Now().UnixNano()%1000000+10), where)
	t.Cleanup(func() { run(t, "exportfs", "-u", where) })
	e, err := volume.ParseExport(os.Getenv("LAB_NFS_SERVER"), dir)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

func ids(uid, gid uint32) (u, g *uint32) { return &uid, &gid }

func owner(t *testing.T, path string) (mode volume.Mode, uid, gid uint32) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return volume.Mode(st.Mode & 0o7777), st.Uid, st.Gid
}

func versions(t *testing.T, test func(t *testing.T, disk, version string)) {
	for _, disk := range []string{"LAB_EXPORT_EXT4", "LAB_EXPORT_XFS"} {
		for _, version := range []string{"vers=4.2", "vers=3"} {
			t.Run(disk+" "+version, func(t *testing.T) { test(t, disk, version) })
		}
	}
}

// Where the squashed user may write, volumes live and die; what it may not give
// away is refused by name and leaves nothing.
func TestSquashedMayWrite(t *testing.T) {
	versions(t, func(t *testing.T, disk, version string) {
		for _, options := range []string{"rw,root_squash", "rw,all_squash,anonuid=1234,anongid=1234"} {
			e, dir := export(t, disk, options, 0o777)
			s := newStore(t)
			req := store.CreateRequest{
				Name: "pvc-1", MountOptions: []string{version},
				Params: volume.Params{Export: e, SubDir: "team/data", OnDelete: volume.OnDeleteArchive, Mode: 0o2770},
			}
			v, err := s.Create(t.Context(), req)
			if err != nil {
				t.Fatalf("%s: %v", options, err)
			}
			if mode, uid, _ := owner(t, filepath.Join(dir, "team/data")); mode != 0o2770 || uid == 0 {
				t.Errorf("%s: mode %s of %d", options, mode, uid)
			}
			if err := s.Modify(t.Context(), v.ID, volume.Mutable{Mode: 0o700}, nil); err != nil {
				t.Errorf("%s: %v", options, err)
			}
			for range 2 {
				if err := s.Delete(t.Context(), v.ID, nil); err != nil {
					t.Errorf("%s: %v", options, err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "team/archived-data")); err != nil {
				t.Error(err)
			}
			req.Name, req.Params.SubDir = "pvc-2", "other/data"
			req.Params.UID, req.Params.GID = ids(77, 78)
			_, err = s.Create(t.Context(), req)
			if !errors.Is(err, volume.ErrRefused) || !strings.Contains(err.Error(), "uid 77, gid 78") || !strings.Contains(err.Error(), "no_root_squash") {
				t.Errorf("%s: %v, want ErrRefused naming owner and remedy", options, err)
			}
			for _, left := range []string{"other", ".nfs-csi/volumes/other", ".nfs-csi/names/pvc-2"} {
				if _, err := os.Lstat(filepath.Join(dir, left)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: %s is left behind", options, left)
				}
			}
		}
	})
}

func TestSquashedMayNotWrite(t *testing.T) {
	versions(t, func(t *testing.T, disk, version string) {
		e, dir := export(t, disk, "rw,root_squash", 0o755)
		_, err := newStore(t).Create(t.Context(), store.CreateRequest{
			Name: "pvc-1", MountOptions: []string{version}, Params: volume.Params{Export: e},
		})
		if !errors.Is(err, volume.ErrRefused) || !strings.Contains(err.Error(), "uid 0, gid 0 and has mode 0755") || !strings.Contains(err.Error(), "root_squash") {
			t.Errorf("got %v, want ErrRefused naming owner and remedy", err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

func TestOwnerModeAndArchive(t *testing.T) {
	versions(t, func(t *testing.T, disk, version string) {
		e, dir := export(t, disk, "rw,no_root_squash", 0o755)
		s := newStore(t)
		for _, name := range []string{"pvc-1", "pvc-2"} {
			req := store.CreateRequest{
				Name: name, MountOptions: []string{version},
				Params: volume.Params{Export: e, SubDir: "team/data", OnDelete: volume.OnDeleteArchive, Mode: 0o2750},
			}
			req.Params.UID, req.Params.GID = ids(77, 78)
			v, err := s.Create(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if mode, uid, gid := owner(t, filepath.Join(dir, "team/data")); mode != 0o2750 || uid != 77 || gid != 78 {
				t.Errorf("mode %s of %d:%d", mode, uid, gid)
			}
			for range 2 {
				if err := s.Delete(t.Context(), v.ID, nil); err != nil {
					t.Error(err)
				}
			}
		}
		for _, archive := range []string{"archived-data", "archived-data.pvc-2"} {
			if _, err := os.Stat(filepath.Join(dir, "team", archive)); err != nil {
				t.Error(err)
			}
		}
	})
}
