package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// The mountPermissions in PersistentVolumes of csi-driver-nfs apply at each publish.
func TestMountPermissionsAtPublish(t *testing.T) {
	const id = "nfs.test/export/old"
	old := map[string]string{"server": "nfs.test", "share": "/export", "subDir": "old", "mountPermissions": "0770"}
	with := func(key, value string) map[string]string {
		attributes := map[string]string{}
		for k, v := range old {
			attributes[k] = v
		}
		attributes[key] = value
		return attributes
	}
	for name, tt := range map[string]struct {
		attributes map[string]string
		change     func(*csi.NodePublishVolumeRequest)
		want       os.FileMode
	}{
		"as it says":        {old, nil, 0o770},
		"zero":              {with("mountPermissions", "0"), nil, 0o700},
		"none":              {with("mountPermissions", ""), nil, 0o700},
		"reader":            {old, func(r *csi.NodePublishVolumeRequest) { r.Readonly = true }, 0o700},
		"read-only mount":   {with("mountOptions", "ro"), nil, 0o700},
		"the export itself": {with("subDir", ""), nil, 0o700},
	} {
		l := newLab(t)
		if err := os.Mkdir(filepath.Join(l.dir, "old"), 0o700); err != nil {
			t.Fatal(err)
		}
		export, err := os.Stat(l.dir)
		if err != nil {
			t.Fatal(err)
		}
		req := l.publishReq(&csi.Volume{VolumeId: id, VolumeContext: tt.attributes})
		if tt.change != nil {
			tt.change(req)
		}
		for range 2 {
			if _, err := l.NodePublishVolume(t.Context(), req); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if info, err := os.Stat(filepath.Join(l.dir, "old")); err != nil || info.Mode().Perm() != tt.want {
				t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, tt.want)
			}
		}
		if info, err := os.Stat(l.dir); err != nil || info.Mode() != export.Mode() {
			t.Errorf("%s: the export has become %v, %v", name, info.Mode(), err)
		}
		l.unpublish(t, l.target)
	}
	l := newLab(t)
	// The author of a pod must not change modes with the node's identity.
	node, request, fake := inlineNode(t, &Ephemeral{Servers: []string{"nfs.test:/export/scratch"}})
	inline := request(map[string]string{"subDir": "scratch/a", "mountPermissions": "0777"})
	if _, err := node.NodePublishVolume(t.Context(), inline); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(inline.GetTargetPath()); err != nil || info.Mode().Perm() != 0o755 || fake.MountCalls() != 1 {
		t.Errorf("inline: %v, %v", info.Mode(), err)
	}
	_, err := l.NodePublishVolume(t.Context(), l.publishReq(&csi.Volume{VolumeId: id, VolumeContext: with("mountPermissions", "rwx")}))
	mustFail(t, err, codes.InvalidArgument, `mountPermissions: invalid: mode "rwx"`)
}
