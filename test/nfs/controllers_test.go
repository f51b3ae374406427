package nfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// controllers are stores of which each has an NFS client of its own, as on a
// machine of its own: with nosharecache nothing that one has seen, and the kernel
// believes for half a minute and more, is known to another.
func controllers(t *testing.T, n int, version string) []*store.Store {
	t.Helper()
	var all []*store.Store
	for range n {
		all = append(all, newStore(t, version, "nosharecache"))
	}
	return all
}

// clientVersions are those of NFS, with a disk for each.
func clientVersions() map[string]string {
	return map[string]string{"vers=4.2": "LAB_EXPORT_XFS", "vers=3": "LAB_EXPORT_EXT4"}
}

func clientRequest(e volume.Export, name, version string) store.CreateRequest {
	return store.CreateRequest{Name: name, Params: volume.Params{Export: e}, MountOptions: []string{version, "nosharecache"}}
}

// content lists what is on the server, without what is made and what is deleted.
func content(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		rel, relErr := filepath.Rel(dir, p)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case rel == ".", rel == ".nfs-csi":
			return nil
		case filepath.Dir(rel) == ".nfs-csi":
			if d.Name() == "trash" || d.Name() == "tmp" {
				return filepath.SkipDir
			}
			return nil
		}
		names = append(names, rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func mustContain(t *testing.T, dir string, want ...string) {
	t.Helper()
	got := content(t, dir)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("on the server are %q, want %q", got, want)
	}
}

func live(subDir string) []string {
	return []string{subDir, ".nfs-csi/volumes/" + subDir, ".nfs-csi/volumes/" + subDir + "/.record.json"}
}

func TestEightControllersCreateTheSameVolumes(t *testing.T) {
	for version, disk := range clientVersions() {
		t.Run(version, func(t *testing.T) {
			e, dir := export(t, disk, "rw,no_root_squash", 0o777)
			volumes := 200
			if version == "vers=3" {
				volumes = 40
			}
			stores := controllers(t, 8, version)
			ids := make([]sync.Map, volumes)
			all(stores, volumes, func(s *store.Store, i int) {
				v, err := s.Create(t.Context(), clientRequest(e, fmt.Sprintf("pvc-%d", i), version))
				if err != nil {
					t.Errorf("create %d: %v", i, err)
				}
				ids[i].Store(v, true)
			})
			var want []string
			for i := range ids {
				n := 0
				ids[i].Range(func(any, any) bool { n++; return true })
				if n != 1 {
					t.Errorf("pvc-%d became %d volumes", i, n)
				}
				want = append(want, live(fmt.Sprintf("pvc-%d", i))...)
			}
			mustContain(t, dir, want...)
			all(stores, volumes, func(s *store.Store, i int) {
				name := fmt.Sprintf("pvc-%d", i)
				if err := s.Delete(t.Context(), volume.ID{Export: e, SubDir: name, Name: name}, nil); err != nil {
					t.Errorf("delete %d: %v", i, err)
				}
			})
			mustContain(t, dir)
		})
	}
}

// all lets every store do all n things, each in another order.
func all(stores []*store.Store, n int, do func(s *store.Store, i int)) {
	var wg sync.WaitGroup
	for k, s := range stores {
		for part := range 2 {
			wg.Go(func() {
				for i := part; i < n; i += 2 {
					do(s, (i+k*3)%n)
				}
			})
		}
	}
	wg.Wait()
}

// Of requests for one name that differ, one wins. All this takes place within a
// tick of the server's clock, which is what NFSv3 tells changes by.
func TestControllersDisagree(t *testing.T) {
	e, dir := export(t, "LAB_EXPORT_XFS", "rw,no_root_squash", 0o777)
	const version = "vers=4.2"
	stores := controllers(t, 4, version)
	nested := []string{"a", "a/b", "a/b/c", "a/d"}
	for what, change := range map[string]func(*store.CreateRequest, int){
		"size": func(r *store.CreateRequest, i int) {
			r.Size = store.SizeRange{Required: int64(1 + i), Limit: int64(1 + i)}
		},
		"mode":      func(r *store.CreateRequest, i int) { r.Params.Mode = volume.Mode(0o700 + i) },
		"directory": func(r *store.CreateRequest, i int) { r.Params.SubDir = fmt.Sprint("dir-", i) },
		"nested":    func(r *store.CreateRequest, i int) { r.Params.SubDir = nested[i] },
	} {
		for round := range 5 {
			made := make([]error, len(stores))
			var wg sync.WaitGroup
			for i, s := range stores {
				wg.Go(func() {
					req := clientRequest(e, fmt.Sprint(what, round), version)
					if what == "nested" { // of volumes that are not the same
						req.Name += fmt.Sprint("-", i)
					}
					change(&req, i)
					_, made[i] = s.Create(t.Context(), req)
					for errors.Is(made[i], volume.ErrInProgress) {
						_, made[i] = s.Create(t.Context(), req)
					}
				})
			}
			wg.Wait()
			won := 0
			for i, err := range made {
				switch {
				case err == nil:
					won++
				case !errors.Is(err, volume.ErrIncompatible) && !errors.Is(err, volume.ErrOwned):
					t.Errorf("%s %d: %v", what, i, err)
				}
			}
			// Two of nested directories may both win: neither is in the other.
			if won == 0 || won > 1 && what != "nested" {
				t.Errorf("%s: %d of different requests for one name have won: %v", what, won, made)
			}
			// What was made is whole, and there is nothing else.
			var want []string
			for i, err := range made {
				if err != nil {
					continue
				}
				name := fmt.Sprint(what, round)
				switch what {
				case "directory":
					want = append(want, live(fmt.Sprint("dir-", i))...)
					want = append(want, ".nfs-csi/names/"+name)
				case "nested":
					for k, other := range nested[:i] {
						if made[k] == nil && (strings.HasPrefix(nested[i], other+"/") || strings.HasPrefix(other, nested[i]+"/")) {
							t.Errorf("both %s and %s were made", other, nested[i])
						}
					}
				default:
					want = append(want, live(name)...)
				}
			}
			if what != "nested" {
				mustContain(t, dir, want...)
			}
			wipe(t, stores[0], e, dir)
		}
	}
}

// wipe deletes all volumes through a store.
func wipe(t *testing.T, s *store.Store, e volume.Export, dir string) {
	t.Helper()
	page, err := s.List(t.Context(), 0, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range page.Volumes {
		if v.ID.Export != e {
			continue
		}
		if err := s.Delete(t.Context(), v.ID, nil); err != nil {
			t.Error(err)
		}
	}
	mustContain(t, dir)
}

// Creates and deletes of one name at once, which no orchestrator that keeps to the
// CSI specification asks for, leave nothing that the next call cannot put right.
func TestControllersCreateAndDelete(t *testing.T) {
	e, dir := export(t, "LAB_EXPORT_XFS", "rw,no_root_squash", 0o777)
	const version = "vers=4.2"
	stores := controllers(t, 4, version)
	id := volume.ID{Export: e, SubDir: "pvc-1", Name: "pvc-1"}
	for range 25 {
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() {
				var err error
				if i%2 == 0 {
					_, err = s.Create(t.Context(), clientRequest(e, "pvc-1", version))
					if errors.Is(err, volume.ErrInProgress) {
						err = nil // to be repeated, as below
					}
				} else {
					err = s.Delete(t.Context(), id, nil)
				}
				if err != nil {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		wg.Wait()
		// A directory alone is what is left when the record went before it came.
		if there := content(t, dir); len(there) > 0 && !slices.Contains(there, "pvc-1") {
			t.Errorf("a volume without its directory: on the server are %q", there)
		}
		if _, err := stores[0].Create(t.Context(), clientRequest(e, "pvc-1", version)); err != nil {
			t.Error(err)
		}
		mustContain(t, dir, live("pvc-1")...)
		if err := stores[2].Delete(t.Context(), id, nil); err != nil {
			t.Error(err)
		}
		mustContain(t, dir)
	}
}
