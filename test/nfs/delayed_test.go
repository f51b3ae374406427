package nfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A delete that the network holds up, while another machine's controller deletes
// the volume and makes another one in its directory, leaves that one alone.
func TestHeldUpDeleteSparesALaterVolume(t *testing.T) {
	for version, disk := range clientVersions() {
		e, dir := export(t, disk, "rw,no_root_squash", 0o777)
		for policy, steps := range map[volume.OnDelete][]string{
			volume.OnDeleteDelete:  {"quarantine directory", "check owner of quarantined directory", "remove record"},
			volume.OnDeleteArchive: {"quarantine directory", "rename to archive"},
		} {
			for _, at := range steps {
				t.Run(version+" "+string(policy)+" "+at, func(t *testing.T) {
					hold := func() {}
					slow := steppingStore(t, func(name string) {
						if name == at {
							hold()
						}
					}, version, "nosharecache")
					other := newStore(t, version, "nosharecache")
					req := clientRequest(e, "first", version)
					req.Params.SubDir, req.Params.OnDelete = "data", policy
					first, err := slow.Create(t.Context(), req)
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(dir, "data/old"), nil, 0o644); err != nil {
						t.Fatal(err)
					}
					var later store.Created
					hold = func() {
						hold = func() {}
						if err := other.Delete(t.Context(), first.ID, nil); err != nil {
							t.Error(err)
						}
						req.Name = "later"
						if later, err = other.Create(t.Context(), req); err != nil {
							t.Error(err)
						}
						if err := os.WriteFile(filepath.Join(dir, "data/precious"), nil, 0o644); err != nil {
							t.Error(err)
						}
					}
					if err := slow.Delete(t.Context(), first.ID, nil); err != nil {
						t.Error(err)
					}
					want := append(live("data"), "data/precious", ".nfs-csi/names/later")
					if policy == volume.OnDeleteArchive {
						want = append(want, "archived-data", "archived-data/old")
					}
					mustContain(t, dir, want...)
					if err := slow.Delete(t.Context(), later.ID, nil); err != nil {
						t.Error(err)
					}
					for _, name := range []string{"archived-data", "archived-data.later"} {
						if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
							t.Error(err)
						}
					}
					mustContain(t, dir)
				})
			}
		}
	}
}
