package nfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// Two claims of a class with shared: "true" have one directory: what the pod of one
// writes the pod of the other reads, and goes on reading when the first claim is gone.
func TestSharedByTwoPods(t *testing.T) {
	for version, disk := range clientVersions() {
		t.Run(version, func(t *testing.T) {
			e, dir := export(t, disk, "rw,no_root_squash", 0o777)
			s := plugin(t)
			class := map[string]string{"subDir": "${pvc.metadata.namespace}/models", "shared": "true", "mode": "2775"}
			volumes := map[string]*csi.Volume{}
			for uid, namespace := range map[string]string{"1": "team", "2": "team", "3": "other"} {
				resp, err := s.CreateVolume(t.Context(), claimReq(e, uid, namespace, "claim-"+uid, version, class))
				if err != nil {
					t.Fatal(err)
				}
				volumes[uid] = resp.GetVolume()
			}
			writer, reader := publishReq(t, e, "team/models", version), publishReq(t, e, "team/models", version)
			writer.VolumeId, writer.VolumeContext = volumes["1"].GetVolumeId(), volumes["1"].GetVolumeContext()
			reader.VolumeId, reader.VolumeContext, reader.Readonly = volumes["2"].GetVolumeId(), volumes["2"].GetVolumeContext(), true
			s.publish(t, writer)
			s.publish(t, reader)
			writeFile(t, filepath.Join(writer.GetTargetPath(), "model"), "weights")
			mustHold(t, filepath.Join(reader.GetTargetPath(), "model"), "weights")
			if err := os.WriteFile(filepath.Join(reader.GetTargetPath(), "model"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("written by the reader: %v, want a read-only file system", err)
			}
			if _, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: writer.GetVolumeId()}); err != nil {
				t.Error(err)
			}
			mustHold(t, filepath.Join(reader.GetTargetPath(), "model"), "weights")
			for _, subDir := range []string{"team/models", "team", "team/models/below"} {
				_, err := s.CreateVolume(t.Context(), claimReq(e, "4", "team", "own", version, map[string]string{"subDir": subDir}))
				mustFail(t, err, codes.FailedPrecondition, "team/models")
			}
			for _, uid := range []string{"2", "3"} {
				if _, err := s.DeleteVolume(context.WithoutCancel(t.Context()), &csi.DeleteVolumeRequest{VolumeId: volumes[uid].GetVolumeId()}); err != nil {
					t.Error(err)
				}
			}
			mustHold(t, filepath.Join(dir, "team/models/model"), "weights")
			info, err := os.Stat(filepath.Join(dir, "other/models"))
			if err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o775 {
				t.Errorf("the other namespace's: %v, %v", info.Mode(), err)
			}
		})
	}
}
