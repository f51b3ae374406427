package driver

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func TestCreateVolume(t *testing.T) {
	l := newLab(t)
	req := createReq("pvc-1")
	req.CapacityRange = &csi.CapacityRange{RequiredBytes: 5}
	req.Parameters["csi.storage.k8s.io/pvc/name"] = "claim"
	for range 2 {
		resp, err := l.CreateVolume(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		v := resp.GetVolume()
		if v.GetVolumeId() != "nfs.test#export#pvc-1##delete" || v.GetCapacityBytes() != 5 {
			t.Errorf("made %v", v)
		}
		want := map[string]string{"server": "nfs.test", "share": "/export", "subdir": "pvc-1", "csi.storage.k8s.io/pvc/name": "claim"}
		if !maps.Equal(v.GetVolumeContext(), want) {
			t.Errorf("context %v, want %v", v.GetVolumeContext(), want)
		}
	}
	if _, err := os.Stat(filepath.Join(l.dir, "pvc-1")); err != nil {
		t.Error(err)
	}
	req.CapacityRange.RequiredBytes = 6
	_, err := l.CreateVolume(t.Context(), req)
	mustFail(t, err, codes.AlreadyExists, "has 5 bytes, the request needs at least 6")
}

func TestCreateVolumeRefuses(t *testing.T) {
	l := newLab(t)
	for name, tt := range map[string]struct {
		spoil func(*csi.CreateVolumeRequest)
		code  codes.Code
		says  string
	}{
		"no name":         {func(r *csi.CreateVolumeRequest) { r.Name = "" }, codes.InvalidArgument, "no volume name"},
		"long name":       {func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("n", 129) }, codes.InvalidArgument, "129 bytes"},
		"no capabilities": {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }, codes.InvalidArgument, "capabilities"},
		"block": {func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		}, codes.InvalidArgument, "block"},
		"no access type": {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessType = nil }, codes.InvalidArgument, "access type"},
		"no access mode": {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessMode = nil }, codes.InvalidArgument, "access mode"},
		"fsType ext4":    {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].GetMount().FsType = "ext4" }, codes.InvalidArgument, `fsType "ext4"`},
		"content source": {func(r *csi.CreateVolumeRequest) {
			r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "v"}}}
		}, codes.NotFound, "content source"},
		"mutable parameters": {func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"a": "b"} }, codes.InvalidArgument, `unknown mutable parameter "a", must be one of onDelete, mountPermissions`},
		"unknown parameter":  {func(r *csi.CreateVolumeRequest) { r.Parameters["shar"] = "x" }, codes.InvalidArgument, `unknown parameter "shar", must be one of server, share`},
		"no server":          {func(r *csi.CreateVolumeRequest) { delete(r.Parameters, "server") }, codes.InvalidArgument, "server is empty"},
		"escaping share":     {func(r *csi.CreateVolumeRequest) { r.Parameters["share"] = "/export/../.." }, codes.InvalidArgument, ".."},
		"mount options": {func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].GetMount().MountFlags = []string{"addr=1.2.3.4"}
		},
			codes.InvalidArgument, `"addr=1.2.3.4"`},
		"size": {func(r *csi.CreateVolumeRequest) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: 2, LimitBytes: 1}
		}, codes.OutOfRange, "limit"},
		"server away":   {func(r *csi.CreateVolumeRequest) { r.Parameters["server"] = "away.test" }, codes.Unavailable, "away.test"},
		"no such share": {func(r *csi.CreateVolumeRequest) { r.Parameters["share"] = "/none" }, codes.NotFound, "nfs.test:/none"},
	} {
		req := createReq("pvc-1")
		tt.spoil(req)
		_, err := l.CreateVolume(t.Context(), req)
		t.Run(name, func(t *testing.T) { mustFail(t, err, tt.code, tt.says) })
	}
	if names, err := os.ReadDir(l.dir); err != nil || len(names) != 0 {
		t.Errorf("the export has %v, %v", names, err)
	}
	l.create(t, "pvc-1")
}

func TestDeleteVolume(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	for range 2 {
		if _, err := l.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(l.dir, "pvc-1")); !os.IsNotExist(err) {
			t.Errorf("the directory: %v", err)
		}
	}
	if _, err := l.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "not-ours"}); err != nil {
		t.Errorf("a foreign ID: %v", err)
	}
	for id, code := range map[string]codes.Code{
		"":                                codes.InvalidArgument,
		"nfs.test#export#":                codes.InvalidArgument,
		"nfs.test#export#../other":        codes.InvalidArgument,
		"away.test#export#v##delete":      codes.Unavailable,
		"nfs.test#elsewhere#v##delete":    codes.NotFound,
		"nfs.test#export#.nfs-csi/x#a#":   codes.InvalidArgument,
		"nfs.test#export#v##delete#extra": codes.InvalidArgument,
	} {
		_, err := l.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
		mustFail(t, err, code, "")
	}
	for _, key := range []string{"mountOptions", "mountoptions"} {
		_, err := l.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{
			VolumeId: "nfs.test#never-mounted#v##", Secrets: map[string]string{key: "vers=9", "other": "x"},
		})
		mustFail(t, err, codes.InvalidArgument, "vers=9")
	}
}

func TestValidateVolumeCapabilities(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	req := func() *csi.ValidateVolumeCapabilitiesRequest {
		return &csi.ValidateVolumeCapabilitiesRequest{
			VolumeId: v.GetVolumeId(), VolumeContext: maps.Clone(v.GetVolumeContext()), Parameters: createReq("").GetParameters(),
			VolumeCapabilities: []*csi.VolumeCapability{capability(writers), capability(alone)},
		}
	}
	resp, err := l.ValidateVolumeCapabilities(t.Context(), req())
	if err != nil || len(resp.GetConfirmed().GetVolumeCapabilities()) != 2 {
		t.Errorf("got %v, %v", resp, err)
	}
	for name, spoil := range map[string]func(*csi.ValidateVolumeCapabilitiesRequest){
		"block": func(r *csi.ValidateVolumeCapabilitiesRequest) {
			r.VolumeCapabilities[1].AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		},
		"other context":    func(r *csi.ValidateVolumeCapabilitiesRequest) { r.VolumeContext["subdir"] = "pvc-2" },
		"other parameters": func(r *csi.ValidateVolumeCapabilitiesRequest) { r.Parameters["share"] = "/other" },
	} {
		r := req()
		spoil(r)
		resp, err := l.ValidateVolumeCapabilities(t.Context(), r)
		if err != nil || resp.GetConfirmed() != nil || resp.GetMessage() == "" {
			t.Errorf("%s: %v, %v, want it unconfirmed with a message", name, resp, err)
		}
	}
	for id, code := range map[string]codes.Code{
		"": codes.InvalidArgument, "not-ours": codes.NotFound, "nfs.test#export#pvc-9##delete": codes.NotFound,
	} {
		r := req()
		r.VolumeId = id
		_, err := l.ValidateVolumeCapabilities(t.Context(), r)
		mustFail(t, err, code, "")
	}
}
