package nfs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// What only looks works on an export that is read-only, with and without the
// driver's own directory, and everything else says what the export lacks; nothing
// changes.
func TestReadOnlyExport(t *testing.T) {
	for version, disk := range clientVersions() {
		for _, records := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s records=%v", version, records), func(t *testing.T) {
				e, dir := export(t, disk, "rw,no_root_squash", 0o777)
				id := predecessorsID(e, "old")
				mkdir(t, filepath.Join(dir, "old"))
				if records {
					made, err := plugin(t).CreateVolume(t.Context(), createReq(e, "old", version))
					if err != nil {
						t.Fatal(err)
					}
					id = made.GetVolume().GetVolumeId()
				}
				if err := os.WriteFile(filepath.Join(dir, "old/f"), []byte("content"), 0o644); err != nil {
					t.Fatal(err)
				}
				reexport(t, dir, "ro,no_root_squash")
				before := digest(t, dir)
				s := plugin(t)
				for what, err := range s.looks(t, id, createReq(e, "old", version)) {
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}
				req := publishReq(t, e, "old", version)
				req.Readonly = true
				s.publish(t, req)
				if b, err := os.ReadFile(filepath.Join(req.GetTargetPath(), "f")); err != nil || string(b) != "content" {
					t.Errorf("the pod reads %q, %v", b, err)
				}
				if err := s.stats(t, req); err != nil {
					t.Error(err)
				}
				for what, err := range s.changes(t, id, createReq(e, "new", version)) {
					t.Log(what)
					mustFail(t, err, codes.FailedPrecondition, "rw")
				}
				if after := digest(t, dir); after != before {
					t.Error("the export has changed")
				}
			})
		}
	}
}

// predecessorsID is that of a volume which csi-driver-nfs has made.
func predecessorsID(e volume.Export, subDir string) string {
	return e.Server + "#" + strings.Trim(e.Share, "/") + "#" + subDir
}

func (s *services) looks(t *testing.T, id string, create *csi.CreateVolumeRequest) map[string]error {
	t.Helper()
	ctx, all := t.Context(), map[string]error{}
	_, all["get"] = s.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: id})
	_, all["list"] = s.ListVolumes(ctx, &csi.ListVolumesRequest{})
	_, all["list snapshots"] = s.ListSnapshots(ctx, &csi.ListSnapshotsRequest{})
	_, all["capacity"] = s.GetCapacity(ctx, &csi.GetCapacityRequest{Parameters: create.GetParameters()})
	_, all["health"] = s.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
	_, all["validate"] = s.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: create.GetVolumeCapabilities()})
	return all
}

func (s *services) changes(t *testing.T, id string, create *csi.CreateVolumeRequest) map[string]error {
	t.Helper()
	ctx, all := t.Context(), map[string]error{}
	_, all["create"] = s.CreateVolume(ctx, create)
	_, all["delete"] = s.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
	_, all["modify"] = s.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"onDelete": "retain"}})
	_, all["snapshot"] = s.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: id})
	_, all["group"] = s.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: "group", SourceVolumeIds: []string{id}})
	return all
}

// digest of all that is in a directory, with what changed when.
func digest(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		err = errors.Join(err, unix.Lstat(p, &st))
		fmt.Fprintln(sum, p, st.Ino, st.Mode, st.Nlink, st.Size, st.Mtim, st.Ctim)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}
