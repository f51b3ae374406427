package driver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const kubeletID = "csi-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func inlineNode(t *testing.T, e *Ephemeral) (csi.NodeClient, func(map[string]string) *csi.NodePublishVolumeRequest, *nfsmounttest.Fake) {
	t.Helper()
	fake, dir := nfsmounttest.NewFake(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "scratch/a"), 0o755); err != nil {
		t.Fatal(err)
	}
	fake.AddExport(volume.Export{Server: "nfs.test", Share: "/export"}, dir)
	d, err := New(Config{Name: "n", Version: "v", Mode: ModeNode, NodeID: "n", Mounter: fake, Ephemeral: e})
	if err != nil {
		t.Fatal(err)
	}
	request := func(attributes map[string]string) *csi.NodePublishVolumeRequest {
		context := map[string]string{"server": "nfs.test", "share": "/export", "csi.storage.k8s.io/ephemeral": "true"}
		for k, v := range attributes {
			context[k] = v
		}
		return &csi.NodePublishVolumeRequest{
			VolumeId: kubeletID, TargetPath: filepath.Join(t.TempDir(), "mount"), VolumeCapability: capability(alone), VolumeContext: context,
		}
	}
	return csi.NewNodeClient(serve(t, d)), request, fake
}

func TestInlineIsOff(t *testing.T) {
	node, request, _ := inlineNode(t, nil)
	_, err := node.NodePublishVolume(t.Context(), request(nil))
	mustFail(t, err, codes.FailedPrecondition, "--enable-ephemeral")
	// Without podInfoOnMount, the ID identifies an inline volume.
	req := request(nil)
	delete(req.VolumeContext, "csi.storage.k8s.io/ephemeral")
	_, err = node.NodePublishVolume(t.Context(), req)
	mustFail(t, err, codes.FailedPrecondition, "--enable-ephemeral")
}

func TestInline(t *testing.T) {
	node, request, fake := inlineNode(t, &Ephemeral{
		Servers: []string{"other.test", "NFS.test.:/export/scratch"}, MountOptions: []string{"ro", "timeo", "vers", "sec=sys"},
	})
	allowed := request(map[string]string{"subDir": "scratch/a", "mountOptions": "ro,timeo=70,vers=4.1,sec=sys"})
	for range 2 {
		if _, err := node.NodePublishVolume(t.Context(), allowed); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		attributes map[string]string
		code       codes.Code
		says       string
	}{
		"the whole export":  {nil, codes.PermissionDenied, "nfs.test:/export, allowed are other.test"},
		"a sibling":         {map[string]string{"subDir": "scratch2"}, codes.PermissionDenied, "allowed"},
		"another server":    {map[string]string{"server": "evil.test", "subDir": "scratch/a"}, codes.PermissionDenied, "evil.test"},
		"a suffix":          {map[string]string{"server": "nfs.test.evil", "subDir": "scratch/a"}, codes.PermissionDenied, "evil"},
		"dots":              {map[string]string{"subDir": "scratch/../../etc"}, codes.InvalidArgument, ".."},
		"dots in the share": {map[string]string{"share": "/export/scratch/../.."}, codes.InvalidArgument, ".."},
		"backslash":         {map[string]string{"subDir": `scratch\..`}, codes.InvalidArgument, ""},
		"NUL":               {map[string]string{"subDir": "scratch/\x00"}, codes.InvalidArgument, ""},
		"the driver's own":  {map[string]string{"subDir": "scratch/.nfs-csi"}, codes.InvalidArgument, "reserved"},
		"an option":         {map[string]string{"subDir": "scratch/a", "mountOptions": "ro,suid"}, codes.PermissionDenied, `"suid"`},
		"another value":     {map[string]string{"subDir": "scratch/a", "mountOptions": "sec=none"}, codes.PermissionDenied, `"sec=none"`},
		"a hidden option":   {map[string]string{"subDir": "scratch/a", "mountOptions": `ro="x,suid"`}, codes.InvalidArgument, "quotes"},
		"version 3":         {map[string]string{"subDir": "scratch/a", "mountOptions": "vers=3"}, codes.InvalidArgument, "version 3"},
		"said twice":        {map[string]string{"subDir": "scratch/a", "CSI.storage.k8s.io/ephemeral": "false"}, codes.InvalidArgument, "more than once"},
		"not there":         {map[string]string{"subDir": "scratch/b"}, codes.NotFound, "scratch/b"},
	} {
		req := request(tt.attributes)
		_, err := node.NodePublishVolume(t.Context(), req)
		t.Run(name, func(t *testing.T) { mustFail(t, err, tt.code, tt.says) })
		if _, err := os.Lstat(req.GetTargetPath()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the target is left: %v", name, err)
		}
	}
	if n := fake.MountCalls(); n != 1 {
		t.Errorf("%d mounts were made", n)
	}
	if _, err := node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: kubeletID, TargetPath: allowed.GetTargetPath()}); err != nil {
		t.Error(err)
	}
}

func TestEphemeralConfig(t *testing.T) {
	for _, servers := range [][]string{nil, {""}, {"a b"}, {"nfs.test:/a/../b"}, {"[::1:/x"}} {
		_, err := New(Config{Name: "n", Version: "v", Mode: ModeNode, NodeID: "n", Mounter: nfsmounttest.NewFake(), Ephemeral: &Ephemeral{Servers: servers}})
		if err == nil {
			t.Errorf("%q was accepted", servers)
		}
	}
}

func TestWithinAllowedServers(t *testing.T) {
	for _, tt := range []struct {
		allowed, server, share string
		want                   bool
	}{
		{"nfs.test", "nfs.test", "/any", true},
		{"nfs.test:/", "NFS.TEST", "/any", true},
		{"nfs.test:/a", "nfs.test", "/a", true},
		{"nfs.test:/a/", "nfs.test", "/a/b", true},
		{"nfs.test:/a", "nfs.test", "/ab", false},
		{"nfs.test:/a", "nfs.test", "/", false},
		{"[fe80::1]:/a", "fe80:0::1", "/a", true},
		{"::1", "[::1]", "/a", true},
		{"10.0.0.1", "10.0.0.10", "/a", false},
		{"10.0.0.1", "nfs.test", "/a", false},
	} {
		allowed, err := (&Ephemeral{Servers: []string{tt.allowed}}).parse()
		if err != nil {
			t.Fatal(err)
		}
		export, err := volume.ParseExport(tt.server, tt.share)
		if err != nil {
			t.Fatal(err)
		}
		if got := within(volume.Attributes{Export: export}, allowed[0]); got != tt.want {
			t.Errorf("%s in %s: %v", export, strings.TrimSpace(tt.allowed), got)
		}
	}
}
