package nfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A claim that is made again and again, in a cluster with several controllers, has
// its directory each time, and the same claim of another cluster never.
func TestReuseByManyControllers(t *testing.T) {
	for version, disk := range clientVersions() {
		t.Run(version, func(t *testing.T) {
			e, dir := export(t, disk, "rw,no_root_squash", 0o777)
			options := []string{version, "nosharecache"}
			in := func(cluster string) *store.Store {
				return storeWith(t, func(c *store.Config) { c.ClusterID = cluster }, options...)
			}
			ours, theirs := []*store.Store{in("one"), in("one"), in("one")}, in("two")
			ask := func(n int) store.CreateRequest { return reuseRequest(e, fmt.Sprint("pvc-", n), options) }
			first, err := ours[0].Create(t.Context(), ask(0))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(dir, "team/db/file"), "content")
			last := first
			for n := 1; n <= 12; n++ {
				var wg sync.WaitGroup
				for _, s := range ours {
					wg.Go(func() {
						eventually(t, 20*time.Second, "the claim has its volume", func() error {
							_, err := s.Create(t.Context(), ask(n))
							if err != nil && !errors.Is(err, volume.ErrInProgress) && !errors.Is(err, volume.ErrOwned) {
								t.Error(err)
							}
							return err
						})
					})
				}
				for range 3 {
					wg.Go(func() {
						if _, err := theirs.Create(t.Context(), ask(100+n)); !errors.Is(err, volume.ErrOwned) {
							t.Errorf("the same claim of another cluster: %v, want ErrOwned", err)
						}
					})
				}
				wg.Go(func() { // late, and long not the claim's volume any more
					if err := ours[n%3].Delete(t.Context(), first.ID, nil); n > 1 && err != nil && !errors.Is(err, volume.ErrInProgress) {
						t.Error(err)
					}
				})
				wg.Wait()
				if last, err = ours[0].Get(t.Context(), volume.ID{Export: e, SubDir: "team/db", Name: fmt.Sprint("pvc-", n)}, nil); err != nil {
					t.Fatal(err)
				}
				if n > 1 {
					mustHold(t, filepath.Join(dir, "team/db/file"), fmt.Sprint("content", n-1))
				}
				writeFile(t, filepath.Join(dir, "team/db/file"), fmt.Sprint("content", n))
			}
			if err := ours[1].Delete(t.Context(), last.ID, nil); err != nil {
				t.Error(err)
			}
			mustContain(t, dir)
		})
	}
}

// A controller deletes a volume whose directory another one handed over. The kernel of
// the first still knows the note that was replaced: by its handle, as the server has the
// file open, or under a delegation.
func TestReuseNoteReplacedByAnotherController(t *testing.T) {
	for version, disk := range clientVersions() {
		for _, open := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s open=%t", version, open), func(t *testing.T) { reuseNoteReplaced(t, version, disk, open) })
		}
	}
}

func reuseNoteReplaced(t *testing.T, version, disk string, open bool) {
	e, dir := export(t, disk, "rw,no_root_squash", 0o777)
	options := []string{version, "nosharecache"}
	controller := func() *store.Store {
		return storeWith(t, func(c *store.Config) { c.ClusterID = "one" }, options...)
	}
	a, b := controller(), controller()
	create := func(s *store.Store, name string) volume.ID {
		v, err := s.Create(t.Context(), reuseRequest(e, name, options))
		if err != nil {
			t.Fatal(err)
		}
		return v.ID
	}
	create(a, "pvc-0")
	create(b, "pvc-1")
	if open {
		note, err := os.Open(filepath.Join(dir, volume.MetaDir, catalog.ReusePath("team/db")))
		if err != nil {
			t.Fatal(err)
		}
		defer note.Close()
	}
	last := create(a, "pvc-2")
	if err := b.Delete(t.Context(), last, nil); err != nil {
		t.Fatal(err)
	}
	mustContain(t, dir)
}

func reuseRequest(e volume.Export, name string, options []string) store.CreateRequest {
	return store.CreateRequest{Name: name, MountOptions: options, Params: volume.Params{
		Export: e, SubDir: "${pvc.metadata.namespace}/${pvc.metadata.name}", Reuse: true,
		Metadata: map[string]string{volume.KeyPVCNamespace: "team", volume.KeyPVCName: "db"},
	}}
}
