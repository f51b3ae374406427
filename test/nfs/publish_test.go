package nfs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nfs-csi/nfs-csi/pkg/driver"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/rpc"
)

// nodeService is the driver's Node service behind its socket.
func nodeService(t *testing.T, k *nfsmount.Kernel) csi.NodeClient {
	t.Helper()
	d, err := driver.New(driver.Config{Name: "nfs.csi.internal", Version: "test", Mode: driver.ModeNode, NodeID: "lab", Mounter: k})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "csi.sock")
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	server, err := rpc.New(ctx, rpc.Config{
		Endpoint: socket, Register: d.Register, Metrics: prometheus.NewRegistry(), DrainTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return csi.NewNodeClient(conn)
}

// With its server dead a volume stays published where it is, cannot be published
// elsewhere, and is unpublished in time, leaving nothing.
func TestPublishWithADeadServer(t *testing.T) {
	export := exports(t)["xfs"]
	server := newGoingServer(t)
	k, sub := kernel(t), serverDir(t, export)
	node := nodeService(t, k)
	first := filepath.Join(t.TempDir(), "pod-1", "mount")
	publish := func(at string) error {
		_, err := node.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
			VolumeId: "v", TargetPath: at,
			VolumeContext: map[string]string{"server": goingAddress, "share": export.Share, "subDir": sub},
			VolumeCapability: &csi.VolumeCapability{
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			},
		})
		return err
	}
	if err := publish(first); err != nil {
		t.Fatal(err)
	}
	server.goAway(t)

	within(t, 5*time.Second, "publishing again", func() {
		if err := publish(first); err != nil {
			t.Errorf("published already, again: %v", err)
		}
	})
	second := filepath.Join(t.TempDir(), "mount")
	within(t, 10*time.Second, "publishing elsewhere", func() {
		if err := publish(second); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), goingAddress) {
			t.Errorf("got %v, want UNAVAILABLE naming %s", err, goingAddress)
		}
	})
	for _, at := range []string{first, first, second} {
		within(t, 5*time.Second, "unpublishing", func() {
			if _, err := node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: at}); err != nil {
				t.Error(err)
			}
		})
		if e := mountAt(t, at); e != nil {
			t.Errorf("left mounted: %+v", e)
		}
		if _, err := os.Lstat(at); !os.IsNotExist(err) {
			t.Errorf("the target is left: %v", err)
		}
	}
}
