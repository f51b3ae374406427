package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// tampered is the fake mounter with a modified mount table and a record of what was
// mounted.
type tampered struct {
	*nfsmounttest.Fake
	leadsTo string           // source in the mount table instead of the requested one
	others  []nfsmount.Entry // additional entries of the table
	mounted []nfsmount.Mount
}

func (m *tampered) Mount(ctx context.Context, what nfsmount.Mount) error {
	m.mounted = append(m.mounted, what)
	return m.Fake.Mount(ctx, what)
}

func (m *tampered) MountAt(ctx context.Context, target string) (nfsmount.Entry, bool, error) {
	e, mounted, err := m.Fake.MountAt(ctx, target)
	if m.leadsTo != "" {
		e.Source = m.leadsTo
	}
	return e, mounted, err
}

func (m *tampered) Mounts(ctx context.Context) ([]nfsmount.Entry, error) {
	table, err := m.Fake.Mounts(ctx)
	return slices.Concat(table, m.others), err
}

func newTampered(t *testing.T, e *Ephemeral) (csi.NodeClient, *tampered, *csi.NodePublishVolumeRequest) {
	t.Helper()
	m, dir := &tampered{Fake: nfsmounttest.NewFake()}, t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pvc-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.AddExport(volume.Export{Server: "nfs.test", Share: "/export"}, dir)
	d, err := New(Config{Name: "n", Version: "v", Mode: ModeNode, NodeID: "n", Mounter: m, Ephemeral: e})
	if err != nil {
		t.Fatal(err)
	}
	return csi.NewNodeClient(serve(t, d)), m, &csi.NodePublishVolumeRequest{
		VolumeId: "v", TargetPath: filepath.Join(t.TempDir(), "mount"), VolumeCapability: capability(writers),
		VolumeContext: map[string]string{"server": "nfs.test", "share": "/export", "subDir": "pvc-1"},
	}
}

// A mount that a symlink led elsewhere is unmounted.
func TestMountThatLeadsElsewhereIsTakenAway(t *testing.T) {
	node, m, req := newTampered(t, nil)
	m.leadsTo = "nfs.test:/export/victim"
	_, err := node.NodePublishVolume(t.Context(), req)
	mustFail(t, err, codes.PermissionDenied, "leads to nfs.test:/export/victim")
	if table, err := m.Fake.Mounts(t.Context()); err != nil || len(table) != 0 {
		t.Errorf("left mounted: %+v, %v", table, err)
	}
	if _, err := os.Lstat(req.GetTargetPath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target is left: %v", err)
	}
}

// A volume stays published while its server is down: the pod waits, and continues.
func TestPublishedVolumeOfADeadServerStays(t *testing.T) {
	node, m, req := newTampered(t, nil)
	if _, err := node.NodePublishVolume(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	defer m.Hang("nfs.test")()
	if _, err := node.NodePublishVolume(t.Context(), req); err != nil {
		t.Errorf("published already, again: %v", err)
	}
	if n := m.MountCalls(); n != 1 {
		t.Errorf("mounted %d times", n)
	}
}

// kubelet's bind mounts for a subPath are not publications.
func TestAloneBesideABindMount(t *testing.T) {
	node, m, req := newTampered(t, nil)
	bound := nfsmount.Entry{Target: "/var/lib/kubelet/pods/x/volume-subpaths/v/0", Source: "nfs.test:/export/pvc-1", FSType: "nfs4", Root: "/sub"}
	m.others = []nfsmount.Entry{bound}
	req.VolumeCapability = capability(alone)
	if _, err := node.NodePublishVolume(t.Context(), req); err != nil {
		t.Errorf("beside a bind mount: %v", err)
	}
	req.TargetPath = filepath.Join(t.TempDir(), "mount")
	m.others[0].Root = "/"
	_, err := node.NodePublishVolume(t.Context(), req)
	mustFail(t, err, codes.FailedPrecondition, "is published at")
}

func TestOptionsThatTheDriverAdds(t *testing.T) {
	node, m, req := newTampered(t, &Ephemeral{Servers: []string{"nfs.test"}})
	req.VolumeCapability.GetMount().FsType = "nfs4"
	inline := &csi.NodePublishVolumeRequest{
		VolumeId: kubeletID, TargetPath: filepath.Join(t.TempDir(), "mount"), VolumeCapability: capability(writers), VolumeContext: req.GetVolumeContext(),
	}
	for _, r := range []*csi.NodePublishVolumeRequest{req, inline} {
		if _, err := node.NodePublishVolume(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"vers=4", "vers=4,nosuid,nodev"} {
		options, err := nfsmount.ParseOptions([]string{want})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.mounted[i].Options.String(); got != options.String() {
			t.Errorf("mounted with %s, want %s, which is %s", got, want, options)
		}
	}
}

// If the target is a symlink, only the symlink is removed.
func TestUnpublishOfASymlink(t *testing.T) {
	node, _, req := newTampered(t, nil)
	to := t.TempDir()
	precious := filepath.Join(to, "precious")
	if err := errors.Join(os.WriteFile(precious, nil, 0o600), os.Symlink(to, req.GetTargetPath())); err != nil {
		t.Fatal(err)
	}
	if _, err := node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: req.GetTargetPath()}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(req.GetTargetPath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the symlink is left: %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

// Unpublishing a volume clears its publish failure.
func TestUnpublishForgetsWhyItFailed(t *testing.T) {
	node, _, req := newTampered(t, nil)
	req.VolumeContext["share"] = "/none"
	_, err := node.NodePublishVolume(t.Context(), req)
	mustFail(t, err, codes.NotFound, "NFS share not found")
	health := func() (*csi.NodeGetVolumeHealthResponse, error) {
		return node.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: "v", VolumePublishPath: req.GetTargetPath()})
	}
	got, err := health()
	if err != nil || !strings.Contains(got.String(), reasonNotFound) {
		t.Errorf("after a publish that failed: %v, %v", got, err)
	}
	if _, err := node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: req.GetTargetPath()}); err != nil {
		t.Error(err)
	}
	_, err = health()
	mustFail(t, err, codes.NotFound, "")
}
