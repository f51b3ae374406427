package nfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func groupReq(name string, sources ...store.Created) store.GroupRequest {
	req := store.GroupRequest{Name: name}
	for _, v := range sources {
		req.Sources = append(req.Sources, store.Handle{ID: v.ID, Text: v.ID.String()})
	}
	return req
}

func TestGroupSnapshot(t *testing.T) {
	onExports(t, func(t *testing.T, s *store.Store, export volume.Export, version string) {
		var sources []store.Created
		for _, name := range []string{"group-1", "group-2"} {
			v, err := s.Create(t.Context(), request(export, name, version, nil))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Delete(context.WithoutCancel(t.Context()), v.ID, nil); err != nil {
					t.Error(err)
				}
			})
			mkdir(t, filepath.Join(export.Share, name, "dir"))
			for i := range 20 {
				if err := os.WriteFile(filepath.Join(export.Share, name, "dir", fmt.Sprint(i)), make([]byte, 10000), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			sources = append(sources, v)
		}
		g, err := s.CreateGroup(t.Context(), groupReq("g", sources...))
		if err != nil || len(g.Members) != 2 {
			t.Fatalf("made %+v, %v", g, err)
		}
		restored, err := s.Create(t.Context(), request(export, "restored", version, &store.Source{Snapshot: &g.Members[1].ID}))
		if err != nil {
			t.Fatal(err)
		}
		if files, err := os.ReadDir(filepath.Join(export.Share, "restored/dir")); err != nil || len(files) != 20 {
			t.Errorf("restored %v, %v", files, err)
		}
		if err := errors.Join(s.Delete(t.Context(), restored.ID, nil), s.DeleteGroup(t.Context(), g.ID, nil, nil)); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(filepath.Join(export.Share, ".nfs-csi/groups")); err != nil || len(left) != 0 {
			t.Errorf("left are %v, %v", left, err)
		}
		writeUntil := make(chan struct{})
		wrote := make(chan error, 1)
		go func() {
			var err error
			for i := 0; err == nil; i++ {
				select {
				case <-writeUntil:
					wrote <- nil
					return
				default:
					err = os.WriteFile(filepath.Join(export.Share, "group-1/busy"), fmt.Append(nil, i), 0o600)
				}
			}
			wrote <- err
		}()
		if g, err := s.CreateGroup(t.Context(), groupReq("busy", sources...)); !errors.Is(err, volume.ErrWritten) {
			t.Errorf("while it is written to: %+v, %v, want ErrWritten", g, err)
		}
		close(writeUntil)
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	})
}

// What another client changes is seen at once, whatever this one remembers.
func TestChangedSinceByAnotherClient(t *testing.T) {
	k := kernel(t)
	for name, export := range exports(t) {
		for _, version := range []string{"vers=4.2", "vers=3"} {
			sub := serverDir(t, export)
			onServer := filepath.Join(export.Share, sub)
			if err := os.MkdirAll(filepath.Join(onServer, "a/b"), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"a/file", "a/b/file"} {
				if err := os.WriteFile(filepath.Join(onServer, file), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			at := target(t, k)
			if err := k.Mount(t.Context(), nfsmount.Mount{Export: export, SubDir: sub, Target: at, Options: options(t, version)}); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(at)
			if err != nil {
				t.Fatal(err)
			}
			for want, change := range map[string]func() error{
				"a/file": func() error { return os.WriteFile(filepath.Join(onServer, "a/file"), []byte("y"), 0o600) },
				"a/b":    func() error { return os.WriteFile(filepath.Join(onServer, "a/b/new"), nil, 0o600) },
			} {
				since := serverClock(t, onServer)
				// Now this client remembers all of it.
				if got, err := tree.ChangedSince(t.Context(), root, since, 4); err != nil || got != "" {
					t.Errorf("%s %s: before: %q, %v", name, version, got, err)
				}
				if err := change(); err != nil {
					t.Fatal(err)
				}
				if got, err := tree.ChangedSince(t.Context(), root, since, 4); err != nil || got != want {
					t.Errorf("%s %s: %q, %v, want %q", name, version, got, err, want)
				}
			}
			if err := root.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// serverClock waits until what has been changed is older than the time returned.
func serverClock(t *testing.T, dir string) time.Time {
	t.Helper()
	f, err := os.CreateTemp(filepath.Dir(dir), "clock-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var first time.Time
	for {
		var st unix.Stat_t
		if err := errors.Join(f.Chmod(0o600), unix.Fstat(int(f.Fd()), &st)); err != nil {
			t.Fatal(err)
		}
		now := time.Unix(st.Ctim.Sec, st.Ctim.Nsec)
		if first.IsZero() {
			first = now
		}
		if now.After(first) {
			return now
		}
	}
}
