package nfs

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// claimReq is for a claim of a class with these parameters, beside server and share.
func claimReq(e volume.Export, uid, namespace, claim, version string, class map[string]string) *csi.CreateVolumeRequest {
	req := createReq(e, "pvc-"+uid, version)
	for key, value := range class {
		req.Parameters[key] = value
	}
	req.Parameters[volume.KeyPVCNamespace], req.Parameters[volume.KeyPVCName] = namespace, claim
	return req
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustHold(t *testing.T, file, text string) {
	t.Helper()
	if b, err := os.ReadFile(file); err != nil || string(b) != text {
		t.Errorf("%s holds %q, %v, want %q", file, b, err, text)
	}
}

// Who may name a claim does not get what is another one's by naming it.
func TestArchivesAndSnapshotsAreNotAdopted(t *testing.T) {
	for version, disk := range clientVersions() {
		t.Run(version, func(t *testing.T) {
			e, dir := export(t, disk, "rw,no_root_squash", 0o777)
			s := plugin(t)
			byName := map[string]string{"subDir": "${pvc.metadata.name}", "onDelete": "archive"}
			db, err := s.CreateVolume(t.Context(), claimReq(e, "1", "finance", "db", version, byName))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(dir, "db/secret"), "finance")
			if _, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: db.GetVolume().GetVolumeId()}); err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(dir, "team/archived-db/secret"), "nested")
			writeFile(t, filepath.Join(dir, "s1/v1.tar.gz"), "snapshot of csi-driver-nfs")
			writeFile(t, filepath.Join(dir, "left/file"), "retained")
			for claim, says := range map[string]string{"archived-db": "archived-*", "team": "team/archived-db", "s1": "v1.tar.gz"} {
				_, err := s.CreateVolume(t.Context(), claimReq(e, "2", "guest", claim, version, byName))
				mustFail(t, err, codes.FailedPrecondition, says)
			}
			forbids := map[string]string{"subDir": "${pvc.metadata.name}", "adopt": "false"}
			_, err = s.CreateVolume(t.Context(), claimReq(e, "2", "guest", "left", version, forbids))
			mustFail(t, err, codes.FailedPrecondition, `adopt: "false"`)
			mustHold(t, filepath.Join(dir, "archived-db/secret"), "finance")
			mustContain(t, dir, "archived-db", "archived-db/secret", "team", "team/archived-db", "team/archived-db/secret",
				"s1", "s1/v1.tar.gz", "left", "left/file")
			// And what nothing forbids is adopted as before.
			left, err := s.CreateVolume(t.Context(), claimReq(e, "2", "guest", "left", version, byName))
			if err != nil {
				t.Fatal(err)
			}
			mustHold(t, filepath.Join(dir, "left/file"), "retained")
			if _, err := s.DeleteVolume(context.WithoutCancel(t.Context()), &csi.DeleteVolumeRequest{VolumeId: left.GetVolume().GetVolumeId()}); err != nil {
				t.Error(err)
			}
		})
	}
}
