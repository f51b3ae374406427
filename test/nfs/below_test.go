package nfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// exportBelow makes an export in one with the options, and returns the inner one.
func exportBelow(t *testing.T, disk, options string) (inner volume.Export, innerDir string) {
	t.Helper()
	_, dir := export(t, disk, options+",crossmnt", 0o755)
	innerDir = filepath.Join(dir, "inner")
	mkdir(t, innerDir)
	return exportDir(t, innerDir, "rw,no_root_squash,crossmnt"), innerDir
}

// above is the ID of a volume by the export around its own, which csi-driver-nfs gives
// it if that is the share of its class.
func above(id volume.ID) volume.ID {
	id.SubDir = path.Join(path.Base(id.Export.Share), id.SubDir)
	id.Export.Share = path.Dir(id.Export.Share)
	return id
}

// nested runs a test for a pseudo-root, which is read-only, and for an export with others
// in it.
func nested(t *testing.T, test func(t *testing.T, version string, inner volume.Export, dir string)) {
	for version, disk := range clientVersions() {
		for _, options := range []string{"ro,no_root_squash", "rw,no_root_squash", "rw,root_squash"} {
			t.Run(version+" "+options, func(t *testing.T) {
				inner, dir := exportBelow(t, disk, options)
				test(t, version, inner, dir)
			})
		}
	}
}

func isReadOnly(t *testing.T) bool { return strings.HasSuffix(t.Name(), "_ro,no_root_squash") }

func none(names []string) error {
	if len(names) > 0 {
		return fmt.Errorf("there are %q", names)
	}
	return nil
}

func TestDeleteVolumeBelowAnExport(t *testing.T) {
	nested(t, func(t *testing.T, version string, inner volume.Export, dir string) {
		for _, name := range []string{"deleted", "archived", "retained", "other"} {
			writeFile(t, filepath.Join(dir, "team", name, "a/b/file"), name)
		}
		if err := os.Symlink(filepath.Join(dir, "team/other"), filepath.Join(dir, "team/deleted/a/link")); err != nil {
			t.Fatal(err)
		}
		s := newStore(t, version, "nosharecache")
		id := func(name string, policy volume.OnDelete) volume.ID {
			return above(volume.ID{Export: inner, SubDir: "team/" + name, Name: name, OnDelete: policy})
		}
		for range 2 {
			for name, policy := range map[string]volume.OnDelete{
				"deleted": volume.OnDeleteDelete, "archived": volume.OnDeleteArchive, "retained": volume.OnDeleteRetain, "missing": volume.OnDeleteDelete,
			} {
				if err := s.Delete(t.Context(), id(name, policy), nil); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		want := []string{"team"}
		for _, name := range []string{"archived-archived", "retained", "other"} {
			want = append(want, "team/"+name, "team/"+name+"/a", "team/"+name+"/a/b", "team/"+name+"/a/b/file")
		}
		mustContain(t, dir, want...)
		eventually(t, 20*time.Second, "the trash is reclaimed", func() error { return empty(filepath.Join(dir, ".nfs-csi/trash")) })
		if _, err := os.Lstat(filepath.Join(filepath.Dir(dir), volume.MetaDir)); isReadOnly(t) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a catalog in the pseudo-root: %v", err)
		}
		// The same directory, now of a volume of the inner share.
		v, err := s.Create(t.Context(), clientRequest(inner, "pvc-1", version))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "pvc-1/file"), "of another volume")
		old := above(v.ID)
		old.Name, old.OnDelete = "older", volume.OnDeleteDelete
		if err := s.Delete(t.Context(), old, nil); err != nil {
			t.Error(err)
		}
		mustHold(t, filepath.Join(dir, "pvc-1/file"), "of another volume")
	})
}

// What the server has mounted in a volume stays, and so does a volume that is an export.
func TestDeleteVolumeStaysInItsFileSystem(t *testing.T) {
	nested(t, func(t *testing.T, version string, inner volume.Export, dir string) {
		writeFile(t, filepath.Join(dir, "pvc-1/own"), "deleted")
		trash := filepath.Join(dir, ".nfs-csi/trash")
		if version == "vers=4.2" { // to version 3, without nohide, nothing is mounted there
			exportInside(t, filepath.Join(dir, "pvc-1"), trash)
		}
		s := newStore(t, version, "nosharecache")
		whole := above(volume.ID{Export: inner, SubDir: ".", Name: "inner"})
		if err := s.Delete(t.Context(), whole, nil); !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), "inner is the root of a file system") {
			t.Errorf("the export itself: %v, want ErrUnsupported", err)
		}
		mustHold(t, filepath.Join(dir, "pvc-1/own"), "deleted")
		if err := s.Delete(t.Context(), above(volume.ID{Export: inner, SubDir: "pvc-1", Name: "pvc-1"}), nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, "the volume's own file is removed", func() error {
			left, err := filepath.Glob(filepath.Join(trash, "pvc-1.*/own"))
			return errors.Join(err, none(left))
		})
	})
}

// exportInside exports a directory of a volume, whose content must outlive the volume.
func exportInside(t *testing.T, vol, trash string) {
	t.Helper()
	deep := filepath.Join(vol, "deep")
	mkdir(t, deep)
	exportDir(t, deep, "rw,no_root_squash")
	writeFile(t, filepath.Join(deep, "precious"), "kept")
	// Back to where it is unmounted, when nothing looks it up any more.
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(trash, filepath.Base(vol)+".*"))
		if err != nil || len(left) != 1 {
			t.Fatalf("in the trash: %q, %v", left, err)
		}
		mustHold(t, filepath.Join(left[0], "deep/precious"), "kept")
		if err := os.Rename(left[0], vol); err != nil {
			t.Error(err)
		}
	})
}

// A new volume could not be deleted safely there, and a claim must not lie in the wrong
// file system: the error names the share to use.
func TestCreateVolumeBelowAnExport(t *testing.T) {
	nested(t, func(t *testing.T, version string, inner volume.Export, dir string) {
		s := plugin(t)
		outer := inner
		outer.Share = path.Dir(inner.Share)
		for subDir, says := range map[string]string{
			"inner/${pvc.metadata.name}":      "use share: " + inner.Share + " and a subDir without inner/",
			"inner/team/${pvc.metadata.name}": "use share: " + inner.Share + " and a subDir without inner/",
			"inner":                           "use share: " + inner.Share + " and another subDir",
		} {
			_, err := s.CreateVolume(t.Context(), claimReq(outer, "1", "team", "db", version, map[string]string{"subDir": subDir}))
			mustFail(t, err, codes.InvalidArgument, says)
			if err != nil && strings.Contains(err.Error(), "no_root_squash") {
				t.Errorf("it names a remedy that does not help: %v", err)
			}
		}
		if isReadOnly(t) {
			_, err := s.CreateVolume(t.Context(), claimReq(outer, "1", "team", "db", version, nil))
			mustFail(t, err, codes.FailedPrecondition, "if it is a pseudo-root of NFSv4, name an export below it as share")
		}
		mustContain(t, dir)
		made, err := s.CreateVolume(t.Context(), claimReq(inner, "1", "team", "db", version, nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.DeleteVolume(context.WithoutCancel(t.Context()), &csi.DeleteVolumeRequest{VolumeId: made.GetVolume().GetVolumeId()}); err != nil {
			t.Error(err)
		}
	})
}

func TestPublishVolumeBelowAnExport(t *testing.T) {
	nested(t, func(t *testing.T, version string, inner volume.Export, dir string) {
		writeFile(t, filepath.Join(dir, "team/pvc-1/file"), "of a predecessor")
		id := above(volume.ID{Export: inner, SubDir: "team/pvc-1"})
		req := publishReq(t, id.Export, id.SubDir, version)
		plugin(t).publish(t, req)
		mustHold(t, filepath.Join(req.GetTargetPath(), "file"), "of a predecessor")
	})
}
