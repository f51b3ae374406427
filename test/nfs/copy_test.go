package nfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// onExports runs a test on every export of the lab, by every version.
func onExports(t *testing.T, test func(t *testing.T, s *store.Store, export volume.Export, version string)) {
	if os.Getenv("LAB") == "" {
		t.Skip("needs the lab: make test-nfs")
	}
	unix.Umask(0) // as nfsplugin does
	for _, name := range []string{"LAB_EXPORT_EXT4", "LAB_EXPORT_XFS"} {
		for _, version := range []string{"vers=4.2", "vers=3"} {
			t.Run(name+" "+version, func(t *testing.T) {
				export, err := volume.ParseExport(os.Getenv("LAB_NFS_SERVER"), os.Getenv(name))
				if err != nil {
					t.Fatal(err)
				}
				test(t, newStore(t, version), export, version)
			})
		}
	}
}

func newStore(t *testing.T, options ...string) *store.Store {
	t.Helper()
	return storeWith(t, func(*store.Config) {}, options...)
}

// steppingStore calls step before each step that changes the server.
func steppingStore(t *testing.T, step func(name string), options ...string) *store.Store {
	t.Helper()
	return storeWith(t, func(c *store.Config) { c.Step = step }, options...)
}

func storeWith(t *testing.T, change func(*store.Config), options ...string) *store.Store {
	t.Helper()
	kernel, err := nfsmount.NewKernel(nfsmount.DefaultKernelConfig())
	if err != nil {
		t.Fatal(err)
	}
	shares, err := share.New(t.Context(), share.Config{Mounter: kernel, Dir: t.TempDir(), IdleTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	cfg := store.Config{Shares: shares, MountOptions: options, ReclaimWorkers: 8, CopyWorkers: 16}
	change(&cfg)
	s, err := store.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(s.Close(ctx), shares.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return s
}

func request(export volume.Export, name, version string, src *store.Source) store.CreateRequest {
	return store.CreateRequest{Name: name, Params: volume.Params{Export: export}, MountOptions: []string{version}, Source: src}
}

// free is what the server's disk has left.
func free(t *testing.T, export volume.Export) int64 {
	t.Helper()
	unix.Sync()
	var st unix.Statfs_t
	if err := unix.Statfs(export.Share, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// fill makes a volume's content on the server's disk.
func fill(t *testing.T, dir string, bigMiB int) {
	t.Helper()
	big, sparse := filepath.Join(dir, "big"), filepath.Join(dir, "sparse")
	for _, err := range []error{
		os.WriteFile(big, bytes.Repeat([]byte("0123456789abcdef"), bigMiB<<16), 0o640),
		os.WriteFile(sparse, []byte("x"), 0o600), os.Truncate(sparse, 512<<20),
		os.Mkdir(filepath.Join(dir, "many"), 0o755),
		os.Symlink("/etc/passwd", filepath.Join(dir, "link")),
		os.Link(big, filepath.Join(dir, "many/hard")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o622),
		unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o755, 0),
		unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		unix.Setxattr(big, "user.kept", []byte("of the file"), 0),
		os.Chown(big, 1234, 5678), os.Chmod(big, 0o750|os.ModeSetuid), os.Chtimes(big, time.Unix(1e9, 5), time.Unix(1e9+1, 7)),
		os.Mkdir(filepath.Join(dir, "odd\n\xff"), 0), os.Chmod(filepath.Join(dir, "odd\n\xff"), 0o700|os.ModeSetgid|os.ModeSticky),
		os.WriteFile(filepath.Join(dir, "odd\n\xff", "closed"), []byte("to all"), 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		if err := os.WriteFile(filepath.Join(dir, "many", fmt.Sprint(i)), bytes.Repeat([]byte{byte(i)}, 4096), 0o604); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(dir, "many"), time.Unix(1e9, 0), time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
}

func mustBeCopy(t *testing.T, from, to string) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(from, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		n++
		rel, _ := filepath.Rel(from, p)
		var a, b unix.Stat_t
		err = errors.Join(unix.Lstat(p, &a), unix.Lstat(filepath.Join(to, rel), &b))
		if device := a.Mode&unix.S_IFMT == unix.S_IFCHR; device != errors.Is(err, unix.ENOENT) || !device && err != nil {
			t.Error(rel, err) // a device must not come to be in a volume
		}
		if err != nil {
			return nil //nolint:nilerr // the walk goes on
		}
		if a.Mode != b.Mode || a.Uid != b.Uid || a.Gid != b.Gid || a.Mtim != b.Mtim || a.Nlink != b.Nlink {
			t.Errorf("%s: mode %o, owner %d:%d, %v, %d links; want %o, %d:%d, %v, %d", rel, b.Mode, b.Uid, b.Gid, b.Mtim, b.Nlink, a.Mode, a.Uid, a.Gid, a.Mtim, a.Nlink)
		}
		if a.Mode&unix.S_IFMT == unix.S_IFREG {
			if holes := a.Blocks*512 < a.Size; a.Size != b.Size || holes && b.Blocks > a.Blocks+2048 {
				t.Errorf("%s: %d bytes in %d blocks, want %d in %d", rel, b.Size, b.Blocks, a.Size, a.Blocks)
			}
			if a.Size < 64<<20 {
				x, errX := os.ReadFile(p)
				y, errY := os.ReadFile(filepath.Join(to, rel))
				if errX != nil || errY != nil || !bytes.Equal(x, y) {
					t.Errorf("%s: content differs, %v, %v", rel, errX, errY)
				}
			}
		}
		return nil
	})
	if err != nil || n < 300 {
		t.Errorf("compared %d entries, %v", n, err)
	}
}

func TestSnapshotCloneRestore(t *testing.T) {
	onExports(t, func(t *testing.T, s *store.Store, export volume.Export, version string) {
		made, err := s.Create(t.Context(), request(export, "source", version, nil))
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(export.Share, "source")
		fill(t, dir, 32)
		before := free(t, export)
		snap, err := s.CreateSnapshot(t.Context(), store.SnapshotRequest{Name: "snap", Source: made.ID})
		if err != nil {
			t.Fatal(err)
		}
		mustBeCopy(t, dir, filepath.Join(export.Share, ".nfs-csi/snapshots/snap/data"))
		taken := before - free(t, export)
		t.Logf("the snapshot of 32 MiB took %d KiB on the server", taken>>10)
		if version == "vers=4.2" && export.Share == os.Getenv("LAB_EXPORT_XFS") && taken > 16<<20 {
			t.Errorf("XFS did not share the blocks: %d bytes were taken", taken)
		}
		for name, src := range map[string]store.Source{"clone": {Volume: &made.ID}, "restore": {Snapshot: &snap.ID}} {
			v, err := s.Create(t.Context(), request(export, name, version, &src))
			if err != nil {
				t.Fatal(err)
			}
			mustBeCopy(t, dir, filepath.Join(export.Share, name))
			if version == "vers=4.2" { // NFSv3 has no extended attributes
				value := make([]byte, 100)
				if n, err := unix.Getxattr(filepath.Join(export.Share, name, "big"), "user.kept", value); err != nil || string(value[:n]) != "of the file" {
					t.Errorf("%s: extended attribute %q, %v", name, value[:max(n, 0)], err)
				}
			}
			if err := s.Delete(t.Context(), v.ID, nil); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(s.DeleteSnapshot(t.Context(), snap.ID, nil), s.Delete(t.Context(), made.ID, nil)); err != nil {
			t.Error(err)
		}
		eventually(t, 20*time.Second, "all kinds of entries are reclaimed", func() error { return empty(filepath.Join(export.Share, ".nfs-csi/trash")) })
	})
}

func TestCopyToAFullDisk(t *testing.T) {
	onExports(t, func(t *testing.T, s *store.Store, export volume.Export, version string) {
		made, err := s.Create(t.Context(), request(export, "source", version, nil))
		if err != nil {
			t.Fatal(err)
		}
		// From ext4 to XFS and back: nothing to share.
		to := export
		if to.Share = os.Getenv("LAB_EXPORT_XFS"); to == export {
			to.Share = os.Getenv("LAB_EXPORT_EXT4")
		}
		fill(t, filepath.Join(export.Share, "source"), 32)
		// What an earlier test deleted would be reclaimed, and make room, meanwhile.
		if err := os.RemoveAll(filepath.Join(to.Share, ".nfs-csi/trash")); err != nil {
			t.Fatal(err)
		}
		unix.Sync()
		filler := filepath.Join(to.Share, "filler")
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(filler)
		for off := int64(0); err == nil; off += 8 << 20 {
			err = unix.Fallocate(int(f.Fd()), 0, off, 8<<20)
		}
		if closeErr := f.Close(); !errors.Is(err, unix.ENOSPC) || closeErr != nil {
			t.Fatal(err, closeErr)
		}
		_, err = s.CreateSnapshot(t.Context(), store.SnapshotRequest{Name: "snap", Source: made.ID, Export: &to})
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("snapshot: %v, want ENOSPC", err)
		}
		_, err = s.Create(t.Context(), request(to, "clone", version, &store.Source{Volume: &made.ID}))
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("clone: %v, want ENOSPC", err)
		}
		for _, gone := range []string{"clone", ".nfs-csi/volumes/clone", ".nfs-csi/snapshots/snap"} {
			if _, err := os.Lstat(filepath.Join(to.Share, gone)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is there: %v", gone, err)
			}
		}
		if err := os.Remove(filler); err != nil {
			t.Error(err)
		}
		snap, err := s.CreateSnapshot(t.Context(), store.SnapshotRequest{Name: "snap", Source: made.ID, Export: &to})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.DeleteSnapshot(t.Context(), snap.ID, nil), s.Delete(t.Context(), made.ID, nil)); err != nil {
			t.Error(err)
		}
	})
}
