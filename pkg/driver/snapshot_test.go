package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func TestSnapshots(t *testing.T) {
	l := newLab(t)
	sized := createReq("pvc-1")
	sized.CapacityRange = &csi.CapacityRange{RequiredBytes: 5}
	volume, err := l.CreateVolume(t.Context(), sized)
	if err != nil {
		t.Fatal(err)
	}
	v := volume.GetVolume()
	if err := os.WriteFile(filepath.Join(l.dir, "pvc-1/file"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	made, err := l.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.GetVolumeId()})
	if err != nil {
		t.Fatal(err)
	}
	s := made.GetSnapshot()
	if !s.GetReadyToUse() || s.GetSizeBytes() != 5 || s.GetSourceVolumeId() != v.GetVolumeId() || s.GetCreationTime().AsTime().IsZero() {
		t.Errorf("made %v", s)
	}
	got, err := l.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: s.GetSnapshotId()})
	if err != nil || got.GetSnapshot().GetSnapshotId() != s.GetSnapshotId() || got.GetSnapshot().GetSizeBytes() != 5 {
		t.Errorf("got %v, %v", got, err)
	}
	for want, req := range map[int]*csi.ListSnapshotsRequest{
		1: {SnapshotId: s.GetSnapshotId()}, 0: {SnapshotId: s.GetSnapshotId(), SourceVolumeId: "nfs.test#export#pvc-2##delete"},
	} {
		if list, err := l.ListSnapshots(t.Context(), req); err != nil || len(list.GetEntries()) != want {
			t.Errorf("%v: %v, %v", req, list, err)
		}
	}
	req := createReq("pvc-2")
	req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.GetSnapshotId()},
	}}
	restored, err := l.CreateVolume(t.Context(), req)
	if err != nil || restored.GetVolume().GetContentSource().GetSnapshot().GetSnapshotId() != s.GetSnapshotId() || restored.GetVolume().GetCapacityBytes() != 5 {
		t.Errorf("restored %v, %v", restored, err)
	}
	if b, err := os.ReadFile(filepath.Join(l.dir, "pvc-2/file")); err != nil || string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
	req = createReq("pvc-3")
	req.VolumeContentSource, req.CapacityRange = restored.GetVolume().GetContentSource(), &csi.CapacityRange{RequiredBytes: 5}
	if again, err := l.CreateVolume(t.Context(), req); err != nil || again.GetVolume().GetCapacityBytes() != 5 {
		t.Errorf("into a claim like the source's: %v, %v", again, err)
	}
}

func TestSnapshotsRefused(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1").GetVolumeId()
	for name, tt := range map[string]struct {
		req  *csi.CreateSnapshotRequest
		code codes.Code
		says string
	}{
		"no name":           {&csi.CreateSnapshotRequest{SourceVolumeId: v}, codes.InvalidArgument, "no snapshot name"},
		"no source":         {&csi.CreateSnapshotRequest{Name: "s"}, codes.InvalidArgument, "no source"},
		"foreign source":    {&csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "x"}, codes.NotFound, ""},
		"no such volume":    {&csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "nfs.test#export#none##"}, codes.NotFound, "none"},
		"unknown parameter": {&csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v, Parameters: map[string]string{"shar": "x"}}, codes.InvalidArgument, `"shar"`},
		"half an export":    {&csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v, Parameters: map[string]string{"share": "/x"}}, codes.InvalidArgument, "server is empty"},
		"escaping share":    {&csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v, Parameters: map[string]string{"server": "nfs.test", "share": "/a/.."}}, codes.InvalidArgument, ".."},
		"bad options":       {&csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v, Parameters: map[string]string{"server": "nfs.test", "share": "/y", "mountOptions": "vers=9"}}, codes.InvalidArgument, "vers=9"},
	} {
		_, err := l.CreateSnapshot(t.Context(), tt.req)
		t.Run(name, func(t *testing.T) { mustFail(t, err, tt.code, tt.says) })
	}
	_, err := l.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: "nfs.test#export#..#..#v"})
	mustFail(t, err, codes.InvalidArgument, "")
	_, err = l.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: "nfs.test#export#none#none#v"})
	mustFail(t, err, codes.NotFound, "snapshot not found")
	_, err = l.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{StartingToken: "x"})
	mustFail(t, err, codes.Aborted, "without a token")
	_, err = l.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{MaxEntries: -1})
	mustFail(t, err, codes.InvalidArgument, "")
}
