package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func TestPublish(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	for range 2 {
		if _, err := l.NodePublishVolume(t.Context(), l.publishReq(v)); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.fake.MountCalls(); n != 2 { // the controller's and this one
		t.Errorf("%d mounts", n)
	}
	if err := os.WriteFile(filepath.Join(l.target, "f"), nil, 0o644); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(l.dir, "pvc-1/f")); err != nil {
		t.Errorf("what the pod wrote is not in the volume: %v", err)
	}
	l.unpublish(t, l.target)
	l.unpublish(t, l.target)
	l.unpublish(t, "/no/such/parent/mount")
	if _, err := os.Stat(filepath.Join(l.dir, "pvc-1/f")); err != nil {
		t.Errorf("unpublish removed data: %v", err)
	}
}

func TestPublishReadOnlyAndOptions(t *testing.T) {
	for name, tt := range map[string]struct {
		change   func(*csi.NodePublishVolumeRequest)
		readOnly bool
	}{
		"plain":     {func(*csi.NodePublishVolumeRequest) {}, false},
		"readonly":  {func(r *csi.NodePublishVolumeRequest) { r.Readonly = true }, true},
		"mode":      {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = capability(readers) }, false},
		"flag":      {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = capability(writers, "ro") }, true},
		"attribute": {func(r *csi.NodePublishVolumeRequest) { r.VolumeContext["mountOptions"] = "ro,hard" }, true},
		"flag wins": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeContext["mountOptions"] = "ro"
			r.VolumeCapability = capability(writers, "rw")
		}, false},
		"readonly wins": {func(r *csi.NodePublishVolumeRequest) {
			r.Readonly = true
			r.VolumeCapability = capability(writers, "rw")
		}, true},
		"nfs4": {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability.GetMount().FsType = "nfs4" }, false},
	} {
		l := newLab(t)
		req := l.publishReq(l.create(t, "pvc-1"))
		tt.change(req)
		if _, err := l.NodePublishVolume(t.Context(), req); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if e, ok, err := l.fake.MountAt(t.Context(), l.target); err != nil || !ok || e.ReadOnly != tt.readOnly {
			t.Errorf("%s: %+v, %v, want read-only %v", name, e, err, tt.readOnly)
		}
	}
}

func TestPublishRefuses(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	for name, tt := range map[string]struct {
		spoil func(*csi.NodePublishVolumeRequest)
		code  codes.Code
		says  string
	}{
		"no ID":         {func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "" }, codes.InvalidArgument, "volume ID"},
		"no target":     {func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "" }, codes.InvalidArgument, "target"},
		"relative":      {func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "a/b" }, codes.InvalidArgument, "target"},
		"root":          {func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "/a/.." }, codes.InvalidArgument, "target"},
		"no capability": {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil }, codes.InvalidArgument, "capability"},
		"no server":     {func(r *csi.NodePublishVolumeRequest) { delete(r.VolumeContext, "server") }, codes.InvalidArgument, "server is empty"},
		"escape":        {func(r *csi.NodePublishVolumeRequest) { r.VolumeContext["subDir"] = "../x" }, codes.InvalidArgument, ".."},
		"our own":       {func(r *csi.NodePublishVolumeRequest) { r.VolumeContext["subDir"] = ".nfs-csi" }, codes.InvalidArgument, "reserved"},
		"bad option":    {func(r *csi.NodePublishVolumeRequest) { r.VolumeContext["mountOptions"] = "remount" }, codes.InvalidArgument, "remount"},
		"gone":          {func(r *csi.NodePublishVolumeRequest) { r.VolumeContext["subDir"] = "pvc-2" }, codes.NotFound, "nfs.test:/export/pvc-2"},
		"away":          {func(r *csi.NodePublishVolumeRequest) { r.VolumeContext["server"] = "away.test" }, codes.Unavailable, "away.test"},
	} {
		req := l.publishReq(v)
		req.VolumeContext = map[string]string{"server": "nfs.test", "share": "/export", "subDir": "pvc-1"}
		tt.spoil(req)
		_, err := l.NodePublishVolume(t.Context(), req)
		t.Run(name, func(t *testing.T) { mustFail(t, err, tt.code, tt.says) })
		if _, err := os.Lstat(l.target); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the target was left behind: %v", name, err)
		}
	}
}

// An earlier version mounted a volume read-only if its access mode had only readers. When
// kubelet publishes it again, that is no other mount.
func TestPublishAgainWhatAnEarlierVersionMountedReadOnly(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	earlier := l.publishReq(v)
	earlier.Readonly = true
	if _, err := l.NodePublishVolume(t.Context(), earlier); err != nil {
		t.Fatal(err)
	}
	again := l.publishReq(v)
	_, err := l.NodePublishVolume(t.Context(), again)
	mustFail(t, err, codes.AlreadyExists, "read-only")
	again.VolumeContext["mountPermissions"] = "0711"
	for _, mode := range []csi.VolumeCapability_AccessMode_Mode{
		csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
	} {
		again.VolumeCapability = capability(mode)
		if _, err := l.NodePublishVolume(t.Context(), again); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
	if info, err := os.Stat(filepath.Join(l.dir, "pvc-1")); err != nil || info.Mode().Perm() == 0o711 {
		t.Errorf("the mode was set through a read-only mount: %v, %v", info.Mode(), err)
	}
	l.unpublish(t, l.target)
	again.VolumeContext = earlier.VolumeContext
	if _, err := l.NodePublishVolume(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if e, ok, err := l.fake.MountAt(t.Context(), l.target); err != nil || !ok || e.ReadOnly {
		t.Errorf("a new pod has %+v, %v, want it read-write", e, err)
	}
	// The other way round it is another mount.
	_, err = l.NodePublishVolume(t.Context(), earlier)
	mustFail(t, err, codes.AlreadyExists, "read-only")
}

func TestPublishOverSomethingElse(t *testing.T) {
	l := newLab(t)
	a, b := l.create(t, "pvc-a"), l.create(t, "pvc-b")
	if _, err := l.NodePublishVolume(t.Context(), l.publishReq(a)); err != nil {
		t.Fatal(err)
	}
	_, err := l.NodePublishVolume(t.Context(), l.publishReq(b))
	mustFail(t, err, codes.AlreadyExists, "pvc-a")
	ro := l.publishReq(a)
	ro.Readonly = true
	_, err = l.NodePublishVolume(t.Context(), ro)
	mustFail(t, err, codes.AlreadyExists, "read-only")
	if _, err := l.NodePublishVolume(t.Context(), l.publishReq(a)); err != nil {
		t.Errorf("the first is not published any more: %v", err)
	}
}

func TestStaleMountIsReplaced(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	if _, err := l.NodePublishVolume(t.Context(), l.publishReq(v)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(l.dir, "pvc-1"), filepath.Join(l.dir, "away")); err != nil {
		t.Fatal(err)
	}
	_, err := l.NodePublishVolume(t.Context(), l.publishReq(v))
	mustFail(t, err, codes.NotFound, "pvc-1")
	if err := os.Rename(filepath.Join(l.dir, "away"), filepath.Join(l.dir, "pvc-1")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.NodePublishVolume(t.Context(), l.publishReq(v)); err != nil {
		t.Error(err)
	}
}

func TestAlone(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	first := l.publishReq(v)
	first.VolumeCapability = capability(alone)
	for range 2 {
		if _, err := l.NodePublishVolume(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	}
	second := l.publishReq(v)
	second.VolumeCapability, second.TargetPath = capability(alone), l.target+"-2"
	_, err := l.NodePublishVolume(t.Context(), second)
	mustFail(t, err, codes.FailedPrecondition, l.target)
	l.unpublish(t, l.target)
	if _, err := l.NodePublishVolume(t.Context(), second); err != nil {
		t.Errorf("after the first went: %v", err)
	}
}

// The export mounts of the controller in the same process are not publications.
func TestAloneOnAWholeExport(t *testing.T) {
	l := newLab(t)
	l.create(t, "pvc-1")
	req := l.publishReq(&csi.Volume{VolumeId: "static", VolumeContext: map[string]string{"server": "nfs.test", "share": "/export"}})
	req.VolumeCapability = capability(alone)
	if _, err := l.NodePublishVolume(t.Context(), req); err != nil {
		t.Error(err)
	}
	req.TargetPath += "-2"
	_, err := l.NodePublishVolume(t.Context(), req)
	mustFail(t, err, codes.FailedPrecondition, l.target)
}

func TestAloneHasOneWinner(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		wg.Go(func() {
			req := l.publishReq(v)
			req.VolumeCapability, req.TargetPath = capability(alone), fmt.Sprintf("%s-%d", l.target, i)
			if _, err := l.NodePublishVolume(t.Context(), req); err == nil {
				mu.Lock()
				defer mu.Unlock()
				won++
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d pods have a volume that is for one", won)
	}
}

func TestConcurrentPublishAndUnpublish(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = l.NodePublishVolume(t.Context(), l.publishReq(v))
			} else {
				_, err = l.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: l.target})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	l.unpublish(t, l.target)
}

func TestUnpublishRemovesNoContent(t *testing.T) {
	l := newLab(t)
	if err := os.MkdirAll(filepath.Join(l.target, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := l.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: l.target})
	mustFail(t, err, codes.Internal, "not empty")
	if _, err := os.Stat(filepath.Join(l.target, "data")); err != nil {
		t.Error(err)
	}
	_, err = l.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v"})
	mustFail(t, err, codes.InvalidArgument, "target")
}

func TestHangingServerIsBounded(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	defer l.fake.Hang("nfs.test")()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := l.NodePublishVolume(ctx, l.publishReq(v))
	mustFail(t, err, codes.DeadlineExceeded, "")
	// The target is unlocked, and nothing is mounted.
	l.unpublish(t, l.target)
}

// kubelet's directory may be a symlink; the mount table has no symlinks.
func TestTargetBelowASymlink(t *testing.T) {
	l := newLab(t)
	v := l.create(t, "pvc-1")
	link := filepath.Join(t.TempDir(), "kubelet")
	if err := os.Symlink(filepath.Dir(l.target), link); err != nil {
		t.Fatal(err)
	}
	req := l.publishReq(v)
	req.TargetPath = filepath.Join(link, "mount")
	for range 2 {
		if _, err := l.NodePublishVolume(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := l.fake.MountAt(t.Context(), l.target); err != nil || !ok {
		t.Errorf("mounted elsewhere: %v", err)
	}
	l.unpublish(t, req.TargetPath)
}

func TestNodeInfo(t *testing.T) {
	l := newLab(t)
	info, err := l.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	if err != nil || info.GetNodeId() != "node-1" || info.GetAccessibleTopology() != nil {
		t.Errorf("got %v, %v", info, err)
	}
	caps, err := l.NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
	for _, want := range []string{"SINGLE_NODE_MULTI_WRITER", "GET_VOLUME_STATS", "GET_VOLUME_HEALTH", "GET_STORAGE_HEALTH"} {
		if err != nil || !strings.Contains(caps.String(), want) {
			t.Errorf("got %v, %v", caps, err)
		}
	}
}
