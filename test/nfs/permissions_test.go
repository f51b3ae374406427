package nfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// mountPermissions of a PersistentVolume of csi-driver-nfs: set where the server
// lets root do it, a clear error where it does not.
func TestMountPermissions(t *testing.T) {
	versions(t, func(t *testing.T, disk, version string) {
		s := plugin(t)
		for options, want := range map[string]volume.Mode{"rw,no_root_squash": 0o2770, "rw,root_squash": 0o755} {
			e, dir := export(t, disk, options, 0o755)
			if err := os.Mkdir(filepath.Join(dir, "old"), 0o755); err != nil {
				t.Fatal(err)
			}
			req := publishReq(t, e, "old", version)
			req.VolumeContext["mountPermissions"] = "2770"
			for range 2 {
				_, err := s.NodePublishVolume(t.Context(), req)
				if want == 0o2770 && err != nil {
					t.Errorf("%s: %v", options, err)
				} else if want != 0o2770 {
					mustFail(t, err, codes.PermissionDenied, "no_root_squash")
				}
			}
			if mode, _, _ := owner(t, filepath.Join(dir, "old")); mode != want {
				t.Errorf("%s: mode %s, want %s", options, mode, want)
			}
			if mode, _, _ := owner(t, dir); mode != 0o755 {
				t.Errorf("%s: the export has mode %s", options, mode)
			}
			if _, err := s.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: req.GetTargetPath()}); err != nil {
				t.Error(err)
			}
		}
	})
}
