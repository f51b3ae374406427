package nfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nfs-csi/nfs-csi/test/predecessor"
)

// predecessors are the volumes that csi-driver-nfs has created, on a new export.
func predecessors(t *testing.T) (*services, predecessor.Place, []predecessor.Volume) {
	t.Helper()
	e, dir := export(t, "LAB_EXPORT_EXT4", "rw,no_root_squash", 0o755)
	place := predecessor.Place{Server: e.Server, Share: e.Share, Dir: dir}
	volumes, err := place.Volumes("../e2e/testdata/csi-driver-nfs/volumes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return takeover(t), place, volumes
}

// TestVolumesOfCSIDriverNFS: volumes of every form of ID that csi-driver-nfs has written are
// served, expanded, snapshotted, restored and cloned.
func TestVolumesOfCSIDriverNFS(t *testing.T) {
	s, place, volumes := predecessors(t)
	for _, v := range volumes {
		t.Run(v.Claim, func(t *testing.T) {
			s.mustServe(t, place, v)
			id := v.Spec.CSI.VolumeHandle
			resp, err := s.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
				VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 30},
			})
			if err != nil || resp.GetCapacityBytes() != 2<<30 {
				t.Errorf("expanded to %v, %v", resp, err)
			}
			if v.Claim == "static" { // not of an ID that tells a directory
				return
			}
			s.mustCopy(t, place, v, "clone-of-"+v.Claim, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
				Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id},
			}})
			s.mustCopy(t, place, v, "restore-of-"+v.Claim, fromSnapshot(s.readySnapshot(t, "snapshot-of-"+v.Claim, id)))
		})
	}
}

// mustServe publishes a volume, and reads and writes in it.
func (s *services) mustServe(t *testing.T, place predecessor.Place, v predecessor.Volume) {
	t.Helper()
	req := &csi.NodePublishVolumeRequest{
		VolumeId: v.Spec.CSI.VolumeHandle, VolumeContext: v.Spec.CSI.VolumeAttributes,
		TargetPath: filepath.Join(t.TempDir(), "mount"), VolumeCapability: capability(writers, v.Spec.MountOptions...),
	}
	if _, err := s.NodePublishVolume(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(req.GetTargetPath(), "file"))
	err = errors.Join(err, os.WriteFile(filepath.Join(req.GetTargetPath(), "added"), []byte("now"), 0o600))
	s.unpublish(t, req)
	if err != nil || string(got) != v.Content() {
		t.Errorf("it has %q, %v", got, err)
	}
	if added, err := os.ReadFile(filepath.Join(place.Dir, v.Dir, "added")); err != nil || string(added) != "now" {
		t.Errorf("on the server: %q, %v", added, err)
	}
	if info, err := os.Stat(filepath.Join(place.Dir, v.Dir)); v.Claim == "permissions" && (err != nil || info.Mode().Perm() != 0o770) {
		t.Errorf("mountPermissions: the directory is %v, %v", info, err)
	}
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id},
	}}
}

// readySnapshot waits until a snapshot is complete.
func (s *services) readySnapshot(t *testing.T, name, source string) (id string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		resp, err := s.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source})
		if err == nil && resp.GetSnapshot().GetReadyToUse() {
			return resp.GetSnapshot().GetSnapshotId()
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("snapshot %v, %v", resp, err)
		}
	}
}

// mustCopy creates a volume with the content of another.
func (s *services) mustCopy(t *testing.T, place predecessor.Place, v predecessor.Volume, name string, source *csi.VolumeContentSource) {
	t.Helper()
	s.createFrom(t, place, name, source)
	if got, err := os.ReadFile(filepath.Join(place.Dir, name, "file")); err != nil || string(got) != v.Content() {
		t.Errorf("%s has %q, %v", name, got, err)
	}
}

func (s *services) createFrom(t *testing.T, place predecessor.Place, name string, source *csi.VolumeContentSource) {
	t.Helper()
	_, err := s.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability(writers)}, VolumeContentSource: source,
		Parameters:    map[string]string{"server": place.Server, "share": place.Share},
		CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 30},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDeletionsOfCSIDriverNFS: volumes of csi-driver-nfs are deleted, retained or archived as
// their ID says, whatever its form.
func TestDeletionsOfCSIDriverNFS(t *testing.T) {
	s, place, volumes := predecessors(t)
	for _, v := range volumes {
		if v.Claim == "static" { // its reclaim policy is Retain
			continue
		}
		if _, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle}); err != nil {
			t.Errorf("%s: %v", v.Claim, err)
		}
		left := map[string]string{
			"retained": v.Dir, "archived": "archived-" + v.Dir, "nested-archived": "team/archived-nested-archived",
		}[v.Claim]
		if _, err := os.Stat(filepath.Join(place.Dir, v.Dir)); left != v.Dir && !os.IsNotExist(err) {
			t.Errorf("%s: its directory is there, %v", v.Claim, err)
		}
		if left == "" {
			continue
		}
		if got, err := os.ReadFile(filepath.Join(place.Dir, left, "file")); err != nil || string(got) != v.Content() {
			t.Errorf("%s: %s has %q, %v", v.Claim, left, got, err)
		}
	}
}

// TestSnapshotsOfCSIDriverNFS: its archives are restored and deleted.
func TestSnapshotsOfCSIDriverNFS(t *testing.T) {
	s, place, volumes := predecessors(t)
	for _, ending := range []string{".tar.gz", ".tar"} {
		for _, v := range volumes[:5] { // of the forms of ID
			t.Run(v.Claim+ending, func(t *testing.T) {
				name := "snapshot-" + v.Name + ending[len(".tar"):]
				id, err := place.Archive(name, v.Name, ending, v.Content())
				if err != nil {
					t.Fatal(err)
				}
				s.mustCopy(t, place, v, "restore-of-"+name, fromSnapshot(id))
				if _, err := s.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id}); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(filepath.Join(place.Dir, name)); !os.IsNotExist(err) {
					t.Errorf("the archive is there, %v", err)
				}
			})
		}
	}
}
