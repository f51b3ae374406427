package nfs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nfs-csi/nfs-csi/pkg/driver"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// services are the driver's, called without a socket.
type services struct {
	csi.NodeServer
	csi.ControllerServer
	csi.GroupControllerServer
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *services) RegisterService(_ *grpc.ServiceDesc, impl any) {
	if n, ok := impl.(csi.NodeServer); ok {
		s.NodeServer = n
	}
	if c, ok := impl.(csi.ControllerServer); ok {
		s.ControllerServer = c
	}
	if g, ok := impl.(csi.GroupControllerServer); ok {
		s.GroupControllerServer = g
	}
}

// plugin is the driver on the kernel's mounter.
func plugin(t *testing.T, change ...func(*driver.Config)) *services {
	t.Helper()
	return pluginOn(t, kernel(t), change...)
}

func pluginOn(t *testing.T, k nfsmount.Mounter, change ...func(*driver.Config)) *services {
	t.Helper()
	return pluginWith(t, k, store.Config{}, change...)
}

// pluginWith is pluginOn with settings of the store: what new volumes are like.
func pluginWith(t *testing.T, k nfsmount.Mounter, settings store.Config, change ...func(*driver.Config)) *services {
	t.Helper()
	shares, err := share.New(t.Context(), share.Config{Mounter: k, Dir: filepath.Join(t.TempDir(), "shares"), IdleTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	settings.Shares, settings.ReclaimWorkers, settings.CopyWorkers = shares, 4, 4
	volumes, err := store.New(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(volumes.Close(context.Background()), shares.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	cfg := driver.Config{Name: "nfs.csi.internal", Version: "test", Mode: driver.ModeAll, NodeID: "lab", Mounter: k, Volumes: volumes}
	for _, c := range change {
		c(&cfg)
	}
	d, err := driver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &services{}
	d.Register(s)
	return s
}

func capability(mode csi.VolumeCapability_AccessMode_Mode, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{MountFlags: flags}},
	}
}

const writers = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER

// publishReq is for a static PV: any ID, and attributes written by hand.
func publishReq(t *testing.T, e volume.Export, sub string, flags ...string) *csi.NodePublishVolumeRequest {
	t.Helper()
	return &csi.NodePublishVolumeRequest{
		VolumeId: e.Server + "-" + sub, TargetPath: filepath.Join(t.TempDir(), "pod", "mount"), VolumeCapability: capability(writers, flags...),
		VolumeContext: map[string]string{"server": e.Server, "share": e.Share, "subDir": "/" + sub},
	}
}

func (s *services) publish(t *testing.T, req *csi.NodePublishVolumeRequest) {
	t.Helper()
	if _, err := s.NodePublishVolume(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.unpublish(t, req) })
}

func (s *services) unpublish(t *testing.T, req *csi.NodePublishVolumeRequest) {
	t.Helper()
	within(t, 5*time.Second, "unpublish", func() {
		_, err := s.NodeUnpublishVolume(context.WithoutCancel(t.Context()), &csi.NodeUnpublishVolumeRequest{VolumeId: req.GetVolumeId(), TargetPath: req.GetTargetPath()})
		if err != nil {
			t.Error(err)
		}
	})
	if e := mountAt(t, req.GetTargetPath()); e != nil {
		t.Errorf("still mounted: %+v", e)
	}
	if _, err := os.Lstat(req.GetTargetPath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target is left: %v", err)
	}
}

func (s *services) stats(t *testing.T, req *csi.NodePublishVolumeRequest) error {
	t.Helper()
	var err error
	within(t, 2*time.Second, "stats of "+req.GetVolumeId(), func() {
		_, err = s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: req.GetVolumeId(), VolumePath: req.GetTargetPath()})
	})
	return err
}

func (s *services) health(t *testing.T, req *csi.NodePublishVolumeRequest) string {
	t.Helper()
	var resp *csi.NodeGetVolumeHealthResponse
	var err error
	within(t, 2*time.Second, "health of "+req.GetVolumeId(), func() {
		resp, err = s.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: req.GetVolumeId(), VolumePublishPath: req.GetTargetPath()})
	})
	if err != nil {
		t.Errorf("health: %v", err)
	}
	var reasons []string
	for _, h := range resp.GetVolumeHealth().GetHealthStatuses() {
		reasons = append(reasons, h.GetReason())
	}
	return strings.Join(reasons, ",")
}

func (s *services) storageHealth(t *testing.T) string {
	t.Helper()
	var message string
	within(t, 2*time.Second, "storage health", func() {
		resp, err := s.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
		if err != nil {
			t.Errorf("storage health: %v", err)
		}
		for _, h := range resp.GetBackendHealth() {
			message += h.GetReason() + ": " + h.GetMessage()
		}
	})
	return message
}

func createReq(e volume.Export, name string, flags ...string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability(writers, flags...)},
		Parameters: map[string]string{"server": e.Server, "share": e.Share},
	}
}

// create makes a volume that goes with the test.
func (s *services) create(t *testing.T, req *csi.CreateVolumeRequest) *csi.Volume {
	t.Helper()
	resp, err := s.CreateVolume(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := s.DeleteVolume(context.WithoutCancel(t.Context()), &csi.DeleteVolumeRequest{VolumeId: resp.GetVolume().GetVolumeId()})
		if err != nil {
			t.Error(err)
		}
	})
	return resp.GetVolume()
}

func mustFail(t *testing.T, err error, code codes.Code, says string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want %s saying %q", err, code, says)
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

// eventually tries again until the deadline what another party does in its own time.
func eventually(t *testing.T, limit time.Duration, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: not within %s: %v", what, limit, err)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
