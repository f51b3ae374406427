package driver

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// lab is the whole driver behind a real gRPC connection, on the fake mounter.
type lab struct {
	csi.IdentityClient
	csi.ControllerClient
	csi.GroupControllerClient
	csi.NodeClient

	fake   *nfsmounttest.Fake
	dir    string // the export on the server
	target string // a target path like those of kubelet
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{fake: nfsmounttest.NewFake(), dir: t.TempDir(), target: filepath.Join(t.TempDir(), "mount")}
	l.fake.AddExport(volume.Export{Server: "nfs.test", Share: "/export"}, l.dir)
	shares, err := share.New(t.Context(), share.Config{Mounter: l.fake, Dir: t.TempDir(), IdleTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := store.New(t.Context(), store.Config{Shares: shares, ReclaimWorkers: 2, CopyWorkers: 2})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{Name: "nfs.csi.internal", Version: "v1", Mode: ModeAll, NodeID: "node-1", Mounter: l.fake, Volumes: volumes, OwnMounts: shares.Dir()})
	if err != nil {
		t.Fatal(err)
	}
	conn := serve(t, d)
	l.IdentityClient, l.ControllerClient, l.NodeClient = csi.NewIdentityClient(conn), csi.NewControllerClient(conn), csi.NewNodeClient(conn)
	l.GroupControllerClient = csi.NewGroupControllerClient(conn)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(volumes.Close(ctx), shares.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return l
}

func serve(t *testing.T, d *Driver) *grpc.ClientConn {
	t.Helper()
	ln, s := bufconn.Listen(1<<16), grpc.NewServer()
	d.Register(s)
	go s.Serve(ln) //nolint:errcheck // ends with Stop
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient("passthrough:test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func capability(mode csi.VolumeCapability_AccessMode_Mode, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{MountFlags: flags}},
	}
}

const (
	writers = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	readers = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	alone   = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
)

func createReq(name string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name:               name,
		VolumeCapabilities: []*csi.VolumeCapability{capability(writers)},
		Parameters:         map[string]string{"server": "nfs.test", "share": "/export"},
	}
}

func (l *lab) create(t *testing.T, name string) *csi.Volume {
	t.Helper()
	resp, err := l.CreateVolume(t.Context(), createReq(name))
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetVolume()
}

func (l *lab) publishReq(v *csi.Volume) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId: v.GetVolumeId(), VolumeContext: v.GetVolumeContext(),
		TargetPath: l.target, VolumeCapability: capability(writers),
	}
}

func (l *lab) publish(t *testing.T, v *csi.Volume) {
	t.Helper()
	if _, err := l.NodePublishVolume(t.Context(), l.publishReq(v)); err != nil {
		t.Fatal(err)
	}
}

func (l *lab) unpublish(t *testing.T, target string) {
	t.Helper()
	if _, err := l.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: target}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target is still there: %v", err)
	}
}

func mustFail(t *testing.T, err error, code codes.Code, says string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want %s saying %q", err, code, says)
	}
}

func TestConfig(t *testing.T) {
	good := Config{Name: "nfs.csi.internal", Version: "v1", Mode: ModeNode, NodeID: "n", Mounter: nfsmounttest.NewFake()}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"no name":        func(c *Config) { c.Name = "" },
		"bad name":       func(c *Config) { c.Name = "nfs/csi" },
		"long name":      func(c *Config) { c.Name = strings.Repeat("n", 64) },
		"no version":     func(c *Config) { c.Version = "" },
		"bad mode":       func(c *Config) { c.Mode = "both" },
		"no node ID":     func(c *Config) { c.NodeID = "" },
		"long node ID":   func(c *Config) { c.NodeID = strings.Repeat("n", 257) },
		"no mounter":     func(c *Config) { c.Mounter = nil },
		"no store":       func(c *Config) { c.Mode = ModeController },
		"all without it": func(c *Config) { c.Mode = ModeAll },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestModes(t *testing.T) {
	volumes := &store.Store{}
	for mode, want := range map[Mode][2]codes.Code{ // Controller, Node
		ModeController: {codes.OK, codes.Unimplemented},
		ModeNode:       {codes.Unimplemented, codes.OK},
		ModeAll:        {codes.OK, codes.OK},
	} {
		d, err := New(Config{Name: "n", Version: "v", Mode: mode, NodeID: "n", Mounter: nfsmounttest.NewFake(), Volumes: volumes})
		if err != nil {
			t.Fatal(err)
		}
		conn := serve(t, d)
		_, errC := csi.NewControllerClient(conn).ControllerGetCapabilities(t.Context(), &csi.ControllerGetCapabilitiesRequest{})
		_, errN := csi.NewNodeClient(conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
		if got := [2]codes.Code{status.Code(errC), status.Code(errN)}; got != want {
			t.Errorf("%s: %v, want %v", mode, got, want)
		}
		caps, err := csi.NewIdentityClient(conn).GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
		if err != nil || len(caps.GetCapabilities()) != 0 != mode.HasController() {
			t.Errorf("%s: plugin capabilities %v, %v", mode, caps, err)
		}
	}
}

func TestIdentity(t *testing.T) {
	l := newLab(t)
	info, err := l.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "nfs.csi.internal" || info.GetVendorVersion() != "v1" {
		t.Errorf("info %v, %v", info, err)
	}
	ready, err := l.Probe(t.Context(), &csi.ProbeRequest{})
	if err != nil || !ready.GetReady().GetValue() {
		t.Errorf("probe %v, %v", ready, err)
	}
}

func TestToStatus(t *testing.T) {
	if toStatus(nil) != nil {
		t.Error("nil is an error")
	}
	both := errors.Join(volume.ErrUnreachable, context.DeadlineExceeded)
	for _, tt := range []struct {
		err  error
		code codes.Code
	}{
		{both, codes.Unavailable},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{errors.Join(volume.ErrUnreachable, context.Canceled), codes.Canceled},
		{&os.PathError{Op: "mkdir", Err: os.ErrPermission}, codes.PermissionDenied},
		{errors.New("surprise"), codes.Internal},
	} {
		if got := status.Code(toStatus(tt.err)); got != tt.code {
			t.Errorf("%v: %s, want %s", tt.err, got, tt.code)
		}
	}
}
