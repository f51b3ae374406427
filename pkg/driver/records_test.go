package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func TestCreateVolumeOfAClass(t *testing.T) {
	l := newLab(t)
	req := createReq("pvc-1")
	req.Parameters["pathPattern"] = "${.PVC.namespace}/${.PVC.name}"
	req.Parameters["csi.storage.k8s.io/pvc/name"] = "data"
	req.Parameters["csi.storage.k8s.io/pvc/namespace"] = "team"
	req.Parameters["onDelete"] = "delete"
	req.MutableParameters = map[string]string{"onDelete": "archive", "mountPermissions": "0750"}
	resp, err := l.CreateVolume(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	v := resp.GetVolume()
	if v.GetVolumeId() != "nfs.test#export#team/data#pvc-1#archive" || v.GetVolumeContext()["subdir"] != "team/data" {
		t.Errorf("made %v", v)
	}
	if info, err := os.Stat(filepath.Join(l.dir, "team/data")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("directory %v, %v", info, err)
	}
	req.Parameters["pathPattern"] = "${.PVC.labels.app}"
	_, err = l.CreateVolume(t.Context(), req)
	mustFail(t, err, codes.InvalidArgument, "${.PVC.labels.app}")
	req.Parameters["pathPattern"] = "elsewhere"
	_, err = l.CreateVolume(t.Context(), req)
	mustFail(t, err, codes.AlreadyExists, "team/data")
	if _, err := l.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(l.dir, "team/archived-data")); err != nil {
		t.Error(err)
	}
}

func TestControllerExpandVolume(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	req := &csi.ControllerExpandVolumeRequest{VolumeId: v.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 7}}
	resp, err := l.ControllerExpandVolume(t.Context(), req)
	if err != nil || resp.GetCapacityBytes() != 7 || resp.GetNodeExpansionRequired() {
		t.Errorf("got %v, %v", resp, err)
	}
	got, err := l.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: v.GetVolumeId()})
	if err != nil || got.GetVolume().GetCapacityBytes() != 7 || got.GetStatus() == nil {
		t.Errorf("got %v, %v", got, err)
	}
	req.CapacityRange = &csi.CapacityRange{LimitBytes: 1}
	_, err = l.ControllerExpandVolume(t.Context(), req)
	mustFail(t, err, codes.OutOfRange, "has 7 bytes")
	req.CapacityRange = nil
	_, err = l.ControllerExpandVolume(t.Context(), req)
	mustFail(t, err, codes.InvalidArgument, "no capacity range")
	req.VolumeId = "nfs.test#export#none"
	req.CapacityRange = &csi.CapacityRange{RequiredBytes: 7}
	_, err = l.ControllerExpandVolume(t.Context(), req)
	mustFail(t, err, codes.NotFound, "none")
	req.VolumeCapability = &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}
	_, err = l.ControllerExpandVolume(t.Context(), req)
	mustFail(t, err, codes.InvalidArgument, "")
}

// A static PersistentVolume may have any handle, and only the PersistentVolume has its size.
func TestControllerExpandVolumeWithAnyHandle(t *testing.T) {
	l := newLab(t)
	for _, tt := range []struct {
		handle string
		size   *csi.CapacityRange
		code   codes.Code
	}{
		{"datasets", &csi.CapacityRange{RequiredBytes: 7, LimitBytes: 8}, codes.OK},
		{"nas/datasets", &csi.CapacityRange{RequiredBytes: 7}, codes.OK},
		{"nas/export##", &csi.CapacityRange{RequiredBytes: 7}, codes.OK},
		{"datasets", nil, codes.InvalidArgument},
		{"datasets", &csi.CapacityRange{RequiredBytes: 7, LimitBytes: 6}, codes.OutOfRange},
		{"nfs.test#export#../datasets", &csi.CapacityRange{RequiredBytes: 7}, codes.InvalidArgument},
	} {
		resp, err := l.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: tt.handle, CapacityRange: tt.size})
		if tt.code != codes.OK {
			mustFail(t, err, tt.code, "")
		} else if err != nil || resp.GetCapacityBytes() != 7 || resp.GetNodeExpansionRequired() {
			t.Errorf("%s: %v, %v, want 7 bytes", tt.handle, resp, err)
		}
	}
	if n := l.fake.MountCalls(); n != 0 {
		t.Errorf("%d mounts", n)
	}
}

func TestControllerModifyVolume(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	modify := func(id string, parameters map[string]string) error {
		_, err := l.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: parameters})
		return err
	}
	for range 2 {
		if err := modify(v.GetVolumeId(), map[string]string{"onDelete": "retain", "mountPermissions": "700"}); err != nil {
			t.Error(err)
		}
	}
	// All or nothing: with one bad key the good one is not applied either.
	mustFail(t, modify(v.GetVolumeId(), map[string]string{"onDelete": "delete", "uid": "0"}), codes.InvalidArgument, "must be one of onDelete, mountPermissions")
	mustFail(t, modify("nfs.test#export#none", map[string]string{"onDelete": "delete"}), codes.NotFound, "")
	mustFail(t, modify("", nil), codes.InvalidArgument, "")
	if _, err := l.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(l.dir, "pvc-1")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory %v, %v", info, err)
	}
}

func TestListVolumes(t *testing.T) {
	l := newLab(t)
	for _, name := range []string{"a", "b", "c"} {
		l.create(t, name)
	}
	first, err := l.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2})
	if err != nil || len(first.GetEntries()) != 2 || first.GetNextToken() == "" {
		t.Fatalf("got %v, %v", first, err)
	}
	rest, err := l.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: first.GetNextToken()})
	if err != nil || len(rest.GetEntries()) != 1 || rest.GetNextToken() != "" || rest.GetEntries()[0].GetVolume().GetVolumeId() != "nfs.test#export#c##delete" {
		t.Errorf("got %v, %v", rest, err)
	}
	_, err = l.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: "bad"})
	mustFail(t, err, codes.Aborted, "token")
	_, err = l.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: -1})
	mustFail(t, err, codes.InvalidArgument, "negative")
}

func TestGetCapacity(t *testing.T) {
	l := newLab(t)
	req := &csi.GetCapacityRequest{Parameters: createReq("").GetParameters(), VolumeCapabilities: []*csi.VolumeCapability{capability(writers)}}
	req.Parameters["subDir"] = "${pvc.metadata.name}" // which has no value here
	resp, err := l.GetCapacity(t.Context(), req)
	if err != nil || resp.GetAvailableCapacity() <= 0 || resp.GetMaximumVolumeSize().GetValue() != resp.GetAvailableCapacity() {
		t.Errorf("got %v, %v", resp, err)
	}
	if resp, err := l.GetCapacity(t.Context(), &csi.GetCapacityRequest{}); err != nil || resp.GetAvailableCapacity() != 0 {
		t.Errorf("without parameters: %v, %v", resp, err)
	}
	req.Parameters["x"] = "y"
	_, err = l.GetCapacity(t.Context(), req)
	mustFail(t, err, codes.InvalidArgument, `"x"`)
}

func TestControllerHealth(t *testing.T) {
	l := newLab(t)
	good, bad := l.create(t, "good"), l.create(t, "bad")
	if err := os.Remove(filepath.Join(l.dir, "bad")); err != nil {
		t.Fatal(err)
	}
	for v, want := range map[*csi.Volume]int{good: 0, bad: 1} {
		resp, err := l.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: v.GetVolumeId()})
		if h := resp.GetVolumeHealth(); err != nil || h.GetVolumeId() != v.GetVolumeId() || len(h.GetHealthStatuses()) != want {
			t.Errorf("%s: %v, %v", v.GetVolumeId(), resp, err)
		}
	}
	list, err := l.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{})
	if err != nil || len(list.GetEntries()) != 1 || list.GetEntries()[0].GetHealthStatuses()[0].GetStatus() != csi.VolumeHealthErrorType_DATA_LOSS {
		t.Errorf("got %v, %v", list, err)
	}
	_, err = l.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: "nfs.test#export#none"})
	mustFail(t, err, codes.NotFound, "")
}

// Volumes of a shared directory, as seen by a sidecar.
func TestSharedVolumes(t *testing.T) {
	l := newLab(t)
	req := createReq("pvc-1")
	req.Parameters["subDir"], req.Parameters["shared"] = "data", "true"
	var ids []string
	for _, name := range []string{"pvc-1", "pvc-2"} {
		req.Name = name
		resp, err := l.CreateVolume(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		v := resp.GetVolume()
		if v.GetVolumeId() != "nfs.test#export#data#"+name+"#retain" || v.GetVolumeContext()["subDir"] != "data" {
			t.Errorf("made %v", v)
		}
		ids = append(ids, v.GetVolumeId())
	}
	list, err := l.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 1})
	if err != nil || len(list.GetEntries()) != 1 || list.GetEntries()[0].GetVolume().GetVolumeId() != ids[0] {
		t.Errorf("listed %v, %v", list, err)
	}
	list, err = l.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: list.GetNextToken()})
	if err != nil || len(list.GetEntries()) != 1 || list.GetEntries()[0].GetVolume().GetVolumeId() != ids[1] {
		t.Errorf("then %v, %v", list, err)
	}
	_, err = l.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: ids[0], MutableParameters: map[string]string{"onDelete": "delete"}})
	mustFail(t, err, codes.InvalidArgument, "not the volume's own")
	req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: ids[0]}}}
	req.Name = "pvc-3"
	_, err = l.CreateVolume(t.Context(), req)
	mustFail(t, err, codes.InvalidArgument, "data source")
	for _, id := range ids {
		if _, err := l.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(l.dir, "data")); err != nil {
		t.Error(err)
	}
}
