package driver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestVolumeStats(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	req := &csi.NodeGetVolumeStatsRequest{VolumeId: v.GetVolumeId(), VolumePath: l.target}
	_, err := l.NodeGetVolumeStats(t.Context(), req)
	mustFail(t, err, codes.NotFound, l.target)
	l.publish(t, v)
	resp, err := l.NodeGetVolumeStats(t.Context(), req)
	if err != nil || len(resp.GetUsage()) != 2 {
		t.Fatalf("got %v, %v", resp, err)
	}
	for i, unit := range []csi.VolumeUsage_Unit{csi.VolumeUsage_BYTES, csi.VolumeUsage_INODES} {
		if u := resp.GetUsage()[i]; u.GetUnit() != unit || u.GetTotal() <= 0 || u.GetUsed() < 0 || u.GetAvailable() < 0 {
			t.Errorf("%s: %v", unit, u)
		}
	}
	release := l.fake.Hang("nfs.test")
	_, err = l.NodeGetVolumeStats(t.Context(), req)
	mustFail(t, err, codes.Unavailable, "nfs.test")
	release()
	if err := os.Rename(filepath.Join(l.dir, "pvc-1"), filepath.Join(l.dir, "away")); err != nil {
		t.Fatal(err)
	}
	_, err = l.NodeGetVolumeStats(t.Context(), req)
	mustFail(t, err, codes.Unavailable, "stale")
	for _, bad := range []*csi.NodeGetVolumeStatsRequest{
		{VolumePath: l.target}, {VolumeId: "v"},
	} {
		_, err = l.NodeGetVolumeStats(t.Context(), bad)
		mustFail(t, err, codes.InvalidArgument, "")
	}
	for _, path := range []string{t.TempDir(), "/no/such/path", "relative"} {
		_, err = l.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: path})
		mustFail(t, err, codes.NotFound, path)
	}
}

func TestVolumeHealth(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	health := func(path string) (string, error) {
		resp, err := l.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: v.GetVolumeId(), VolumePublishPath: path})
		var all []string
		for _, s := range resp.GetVolumeHealth().GetHealthStatuses() {
			all = append(all, s.GetStatus().String()+" "+s.GetReason())
		}
		if err == nil && resp.GetVolumeHealth().GetVolumeId() != v.GetVolumeId() {
			t.Errorf("health of another volume: %v", resp)
		}
		return strings.Join(all, ","), err
	}
	expect := func(when, want string) {
		t.Helper()
		for _, path := range []string{l.target, ""} {
			if got, err := health(path); err != nil || got != want {
				t.Errorf("%s, path %q: %q, %v, want %q", when, path, got, err, want)
			}
		}
	}
	_, err := health(l.target)
	mustFail(t, err, codes.NotFound, l.target)
	_, err = health("")
	mustFail(t, err, codes.NotFound, "nfs.test:/export/pvc-1")

	gone := l.publishReq(v)
	gone.VolumeContext = map[string]string{"server": "away.test", "share": "/export"}
	_, err = l.NodePublishVolume(t.Context(), gone)
	mustFail(t, err, codes.Unavailable, "")
	expect("not published", "INACCESSIBLE ServerUnreachable")

	l.publish(t, v)
	expect("published", "")
	release := l.fake.Hang("nfs.test")
	expect("server hangs", "INACCESSIBLE ServerUnreachable")
	release()
	if err := os.Rename(filepath.Join(l.dir, "pvc-1"), filepath.Join(l.dir, "away")); err != nil {
		t.Fatal(err)
	}
	expect("directory gone", "INACCESSIBLE StaleMount")

	for _, bad := range []*csi.NodeGetVolumeHealthRequest{{}, {VolumeId: "v", VolumePublishPath: "relative"}} {
		_, err = l.NodeGetVolumeHealth(t.Context(), bad)
		mustFail(t, err, codes.InvalidArgument, "")
	}
	_, err = l.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: "not ours"})
	mustFail(t, err, codes.NotFound, "")
}

func TestFailedPublishIsForgotten(t *testing.T) {
	var f failures
	f.note("v", "/t", volume.ErrUnreachable)
	f.note("w", "/u", volume.ErrInvalid)
	if f.of("v", "/t") == nil || f.of("v", "") == nil || f.of("v", "/other") != nil || f.of("w", "") != nil {
		t.Errorf("remembers %v", f.last)
	}
	f.note("v", "/t", nil)
	if f.of("v", "") != nil {
		t.Errorf("after a success: %v", f.last)
	}
}

func TestStorageHealth(t *testing.T) {
	l := newLab(t)
	l.fake.AddExport(volume.Export{Server: "other.test", Share: "/export"}, t.TempDir())
	l.publish(t, l.create(t, "pvc-1"))
	ask := func() []*csi.NodeGetStorageHealthResponse_StorageBackendHealth {
		t.Helper()
		resp, err := l.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetBackendHealth()
	}
	if got := ask(); len(got) != 0 {
		t.Errorf("all is well, but: %v", got)
	}
	defer l.fake.Hang("other.test")() // has nothing mounted
	if got := ask(); len(got) != 0 {
		t.Errorf("a server of no concern: %v", got)
	}
	defer l.fake.Hang("nfs.test")()
	got := ask()
	if len(got) != 1 || got[0].GetStatus() != csi.StorageHealthErrorType_STORAGE_UNREACHABLE ||
		got[0].GetReason() != "ServerUnreachable" || !strings.Contains(got[0].GetMessage(), "nfs.test") {
		t.Errorf("got %v", got)
	}
}
