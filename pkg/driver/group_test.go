package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func TestGroupSnapshots(t *testing.T) {
	l := newLab(t)
	// The response has the volume IDs of the request: here one of csi-driver-nfs.
	one, two := l.create(t, "pvc-1").GetVolumeId(), "nfs.test/export/pvc-2"
	l.create(t, "pvc-2")
	if err := os.WriteFile(filepath.Join(l.dir, "pvc-2/file"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	req := &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{two, one}}
	made, err := l.CreateVolumeGroupSnapshot(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	g := made.GetGroupSnapshot()
	if !g.GetReadyToUse() || g.GetGroupSnapshotId() != "nfs.test#export#g###group" || len(g.GetSnapshots()) != 2 || g.GetCreationTime().AsTime().IsZero() {
		t.Fatalf("made %v", g)
	}
	var members []string
	for i, s := range g.GetSnapshots() {
		if s.GetGroupSnapshotId() != g.GetGroupSnapshotId() || !s.GetReadyToUse() || s.GetSourceVolumeId() != []string{one, two}[i] {
			t.Errorf("member %v", s)
		}
		members = append(members, s.GetSnapshotId())
	}
	got, err := l.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: members})
	if err != nil || len(got.GetGroupSnapshot().GetSnapshots()) != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	member, err := l.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: members[1]})
	if err != nil || member.GetSnapshot().GetGroupSnapshotId() != g.GetGroupSnapshotId() {
		t.Errorf("member %v, %v", member, err)
	}
	list, err := l.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})
	if err != nil || len(list.GetEntries()) != 2 || list.GetEntries()[0].GetSnapshot().GetGroupSnapshotId() != g.GetGroupSnapshotId() {
		t.Errorf("list %v, %v", list, err)
	}
	restore := createReq("pvc-3")
	restore.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: members[1]},
	}}
	if _, err := l.CreateVolume(t.Context(), restore); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(l.dir, "pvc-3/file")); err != nil || string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
	_, err = l.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: members[0]})
	mustFail(t, err, codes.InvalidArgument, g.GetGroupSnapshotId())
	_, err = l.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: members[:1]})
	mustFail(t, err, codes.InvalidArgument, members[1])
	for range 2 {
		if _, err := l.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: members}); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: members[0]}); err != nil {
		t.Errorf("delete of a member that went with its group: %v", err)
	}
	_, err = l.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId()})
	mustFail(t, err, codes.NotFound, "snapshot not found")
}

func TestGroupSnapshotsRefused(t *testing.T) {
	l := newLab(t)
	one, two := l.create(t, "pvc-1").GetVolumeId(), l.create(t, "pvc-2").GetVolumeId()
	if _, err := l.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{one}}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		req  *csi.CreateVolumeGroupSnapshotRequest
		code codes.Code
		says string
	}{
		"no name":           {&csi.CreateVolumeGroupSnapshotRequest{SourceVolumeIds: []string{one}}, codes.InvalidArgument, "no group snapshot name"},
		"no source":         {&csi.CreateVolumeGroupSnapshotRequest{Name: "n"}, codes.InvalidArgument, "no source"},
		"foreign source":    {&csi.CreateVolumeGroupSnapshotRequest{Name: "n", SourceVolumeIds: []string{one, "x"}}, codes.NotFound, ""},
		"no such volume":    {&csi.CreateVolumeGroupSnapshotRequest{Name: "n", SourceVolumeIds: []string{one, "nfs.test#export#none##"}}, codes.NotFound, "none"},
		"twice":             {&csi.CreateVolumeGroupSnapshotRequest{Name: "n", SourceVolumeIds: []string{one, two, one}}, codes.InvalidArgument, "more than once"},
		"other sources":     {&csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{one, two}}, codes.AlreadyExists, "pvc-1"},
		"unknown parameter": {&csi.CreateVolumeGroupSnapshotRequest{Name: "n", SourceVolumeIds: []string{one}, Parameters: map[string]string{"shar": "x"}}, codes.InvalidArgument, `"shar"`},
	} {
		_, err := l.CreateVolumeGroupSnapshot(t.Context(), tt.req)
		t.Run(name, func(t *testing.T) { mustFail(t, err, tt.code, tt.says) })
	}
	for _, id := range []string{"", "nfs.test#export#..###group", "nfs.test#export#g#1#pvc-1#group"} {
		_, err := l.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id})
		mustFail(t, err, codes.InvalidArgument, "")
		_, err = l.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id})
		mustFail(t, err, codes.InvalidArgument, "")
	}
	if _, err := l.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "x"}); err != nil {
		t.Error(err)
	}
	_, err := l.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "x"})
	mustFail(t, err, codes.NotFound, "")
	if left, err := filepath.Glob(filepath.Join(l.dir, ".nfs-csi/tmp/*")); err != nil || len(left) != 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}
