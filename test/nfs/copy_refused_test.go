package nfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// copies are the calls that copy a volume, through the driver's services.
func (s *services) copies(t *testing.T, from *csi.Volume, snapshot string, to volume.Export) map[string]func() error {
	t.Helper()
	create := func(name string, src *csi.VolumeContentSource) error {
		req := createReq(to, name)
		req.VolumeContentSource = src
		_, err := s.CreateVolume(t.Context(), req)
		return err
	}
	all := map[string]func() error{
		"snapshot": func() error {
			_, err := s.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{
				Name: "copied", SourceVolumeId: from.GetVolumeId(), Parameters: map[string]string{"server": to.Server, "share": to.Share},
			})
			return err
		},
		"clone": func() error {
			return create("clone", &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
				Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: from.GetVolumeId()},
			}})
		},
	}
	if snapshot != "" {
		all["restore"] = func() error {
			return create("restore", &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
				Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot},
			}})
		}
	}
	return all
}

func (s *services) snapshotOf(t *testing.T, v *csi.Volume) string {
	t.Helper()
	made, err := s.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "taken", SourceVolumeId: v.GetVolumeId()})
	if err != nil {
		t.Fatal(err)
	}
	id := made.GetSnapshot().GetSnapshotId()
	t.Cleanup(func() {
		if _, err := s.DeleteSnapshot(context.WithoutCancel(t.Context()), &csi.DeleteSnapshotRequest{SnapshotId: id}); err != nil {
			t.Error(err)
		}
	})
	return id
}

// mustHaveNothing looks for what a copy that failed has left.
func mustHaveNothing(t *testing.T, dir string) {
	t.Helper()
	for _, gone := range []string{"clone", "restore", ".nfs-csi/volumes/clone", ".nfs-csi/volumes/restore", ".nfs-csi/snapshots/copied"} {
		if _, err := os.Lstat(filepath.Join(dir, gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", gone, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".nfs-csi/tmp/copy*")); err != nil || len(left) > 0 {
		t.Errorf("left in tmp: %q, %v", left, err)
	}
}

// A copy to an export that does not let it through says what the export lacks,
// and leaves nothing; when the export is put right, the same call succeeds.
func TestCopyToAnExportThatRefuses(t *testing.T) {
	for what, tt := range map[string]struct {
		options string
		mode    os.FileMode
		code    codes.Code
		says    string
	}{
		"read-only":               {"ro,no_root_squash", 0o777, codes.FailedPrecondition, "rw"},
		"root_squash, closed":     {"rw,root_squash", 0o755, codes.PermissionDenied, "no_root_squash"},
		"root_squash, open":       {"rw,root_squash", 0o777, codes.PermissionDenied, "no_root_squash"},
		"all_squash, other owner": {"rw,all_squash,anonuid=1234,anongid=1234", 0o777, codes.PermissionDenied, "no_root_squash"},
	} {
		t.Run(what, func(t *testing.T) {
			from, fromDir := export(t, "LAB_EXPORT_EXT4", "rw,no_root_squash", 0o777)
			to, toDir := export(t, "LAB_EXPORT_XFS", tt.options, tt.mode)
			s := plugin(t)
			v := s.create(t, createReq(from, "source"))
			file := filepath.Join(fromDir, "source/f")
			if err := errors.Join(os.WriteFile(file, []byte("of somebody"), 0o600), os.Chown(file, 77, 78)); err != nil {
				t.Fatal(err)
			}
			snapshot := s.snapshotOf(t, v)
			calls := s.copies(t, v, snapshot, to)
			for _, call := range calls {
				mustFail(t, call(), tt.code, tt.says)
			}
			mustHaveNothing(t, toDir)
			reexport(t, toDir, "rw,no_root_squash")
			run(t, "chmod", "777", toDir)
			for name, call := range calls {
				eventually(t, 20*time.Second, name+" when the export is put right", call)
			}
			for _, name := range []string{"clone", "restore", ".nfs-csi/snapshots/copied/data"} {
				if mode, uid, gid := owner(t, filepath.Join(toDir, name, "f")); mode != 0o600 || uid != 77 || gid != 78 {
					t.Errorf("%s: mode %s of %d:%d", name, mode, uid, gid)
				}
			}
		})
	}
}

// reexport gives an export other options and leaves it what it is.
func reexport(t *testing.T, dir, options string) {
	t.Helper()
	b, err := os.ReadFile("/var/lib/nfs/etab")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		where, has, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok || where != dir {
			continue
		}
		_, fsid, _ := strings.Cut(has, "fsid=")
		fsid, _, _ = strings.Cut(fsid, ",")
		run(t, "exportfs", "-o", options+",no_subtree_check,insecure,fsid="+fsid, "*:"+dir)
		return
	}
	t.Fatalf("%s is not exported: %s", dir, b)
}

// fillUp takes all that a disk has but for some bytes.
func fillUp(t *testing.T, disk string, but int64) (free func()) {
	t.Helper()
	name := filepath.Join(disk, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	free = func() {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	t.Cleanup(free)
	for size := int64(16 << 20); size >= 4096; size /= 2 {
		for off, err := int64(0), error(nil); err == nil; off += size {
			var st unix.Stat_t
			if err = unix.Fstat(int(f.Fd()), &st); err == nil {
				err = unix.Fallocate(int(f.Fd()), 0, st.Size, size)
			}
			if err != nil && !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
		}
	}
	info, err := f.Stat()
	if err == nil {
		err = errors.Join(f.Truncate(info.Size()-but), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	return free
}

// A disk that gets full in the middle is RESOURCE_EXHAUSTED for every copy, and
// nothing is left of it; when there is room again, the same calls succeed.
func TestCopiesWhenTheDiskIsFull(t *testing.T) {
	from, fromDir := export(t, "LAB_EXPORT_XFS", "rw,no_root_squash", 0o777)
	to, toDir := export(t, "LAB_EXPORT_EXT4", "rw,no_root_squash", 0o777)
	s := plugin(t)
	v := s.create(t, createReq(from, "source"))
	s.create(t, createReq(to, "there")) // and with it the driver's own directories
	if err := os.WriteFile(filepath.Join(fromDir, "source/f"), []byte(strings.Repeat("content ", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	calls := s.copies(t, v, s.snapshotOf(t, v), to)
	unix.Sync()
	free := fillUp(t, os.Getenv("LAB_EXPORT_EXT4"), 4<<20)
	for name, call := range calls {
		// The server gives room back some time after files were removed: until then
		// there is not even enough for the record.
		eventually(t, 20*time.Second, name+" fails in the copy", func() error {
			err := call()
			mustFail(t, err, codes.ResourceExhausted, "free space")
			if err != nil && strings.Contains(err.Error(), "record-") {
				return fmt.Errorf("it failed before the copy: %w", err)
			}
			return nil
		})
		// Nor does what is to be reclaimed take the room from the next one.
		eventually(t, 20*time.Second, "the rest is reclaimed", func() error { return empty(filepath.Join(toDir, ".nfs-csi/trash")) })
	}
	mustHaveNothing(t, toDir)
	free()
	for name, call := range calls {
		eventually(t, 20*time.Second, name+" when there is room", call)
	}
	for _, name := range []string{"clone", "restore", ".nfs-csi/snapshots/copied/data"} {
		if info, err := os.Stat(filepath.Join(toDir, name, "f")); err != nil || info.Size() != 8<<20 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// A volume can be deleted from a disk that has room for nothing, also where the
// driver has not been before.
func TestDeleteWhenTheDiskIsFull(t *testing.T) {
	for _, records := range []bool{false, true} {
		e, dir := export(t, "LAB_EXPORT_EXT4", "rw,no_root_squash", 0o777)
		id := predecessorsID(e, "old")
		if records {
			id = plugin(t).create(t, createReq(e, "old")).GetVolumeId()
		} else {
			mkdir(t, filepath.Join(dir, "old"))
		}
		if err := os.WriteFile(filepath.Join(dir, "old/f"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		free := fillUp(t, os.Getenv("LAB_EXPORT_EXT4"), 0)
		if err := os.Mkdir(filepath.Join(dir, "none"), 0o700); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		if _, err := plugin(t).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
			t.Errorf("records=%v: %v", records, err)
		}
		for _, gone := range []string{"old", ".nfs-csi/volumes/old"} {
			if _, err := os.Lstat(filepath.Join(dir, gone)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("records=%v: %s is there: %v", records, gone, err)
			}
		}
		free()
	}
}
