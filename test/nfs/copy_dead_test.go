package nfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A server goes away in the middle of a copy: callers hear of it in their time,
// other servers go on, retries cost nothing, and when it comes back the same call
// completes.
func TestServerGoesAwayDuringACopy(t *testing.T) {
	all := exports(t)
	server := newGoingServer(t)
	from := volume.Export{Server: goingAddress, Share: all["ext4"].Share}
	to := volume.Export{Server: goingAddress, Share: all["xfs"].Share}
	// In the lab both servers are one: see TestUnmountOfADeadServer.
	const version, otherVersion = "vers=4.2", "vers=3"
	s := plugin(t)
	v := s.create(t, createReq(from, "dead-source", version))
	s.create(t, createReq(to, "dead-target", version)) // mounts it
	s.create(t, createReq(all["xfs"], "well", otherVersion))
	dir := filepath.Join(from.Share, "dead-source")
	for i := range 2000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), make([]byte, 4096), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	snapshot := func(limit time.Duration) (*csi.Snapshot, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		resp, err := s.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{
			Name: "dead-snap", SourceVolumeId: v.GetVolumeId(), Parameters: map[string]string{"server": to.Server, "share": to.Share, "mountOptions": version},
		})
		return resp.GetSnapshot(), err
	}
	began := make(chan error, 1)
	go func() { _, err := snapshot(time.Minute); began <- err }()
	eventually(t, 20*time.Second, "the copy is under way", func() error {
		files, err := filepath.Glob(filepath.Join(to.Share, ".nfs-csi/tmp/copy*/data/f1*"))
		if err == nil && len(files) < 10 {
			err = fmt.Errorf("%d files are there", len(files))
		}
		return err
	})
	server.goAway(t)

	within(t, 10*time.Second, "the call under way", func() { mustFail(t, <-began, codes.Unavailable, goingAddress) })
	threads, routines := taskCount(t), runtime.NumGoroutine()
	for range 3 {
		within(t, 10*time.Second, "the same call", func() {
			_, err := snapshot(20 * time.Second)
			mustFail(t, err, codes.Unavailable, goingAddress)
		})
	}
	if grown := taskCount(t) - threads; grown > 2 {
		t.Errorf("%d more threads after retries", grown)
	}
	if grown := runtime.NumGoroutine() - routines; grown > 4 {
		t.Errorf("%d more goroutines after retries", grown)
	}
	within(t, 2*time.Second, "create on another server", func() { s.create(t, createReq(all["xfs"], "other", otherVersion)) })
	if _, err := os.Stat(filepath.Join(to.Share, ".nfs-csi/snapshots/dead-snap")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the snapshot is there: %v", err)
	}
	server.come(t)
	var made *csi.Snapshot
	eventually(t, 90*time.Second, "the same call when the server is back", func() (err error) {
		made, err = snapshot(20 * time.Second)
		return err
	})
	if n, err := os.ReadDir(filepath.Join(to.Share, ".nfs-csi/snapshots/dead-snap/data")); err != nil || len(n) != 2000 || !made.GetReadyToUse() {
		t.Errorf("the snapshot has %d files, %v: %v", len(n), err, made)
	}
	if _, err := s.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: made.GetSnapshotId()}); err != nil {
		t.Error(err)
	}
}

// nfsd ends in the middle of a copy and is started again: the copy goes on, or the
// next call makes it, and at no time is there a snapshot that is not whole.
func TestServerRestartsDuringACopy(t *testing.T) {
	const count, version, place = 1500, "vers=4.2", ".nfs-csi/snapshots/copied/data"
	e, dir := export(t, "LAB_EXPORT_XFS", "rw,no_root_squash", 0o777)
	s := plugin(t)
	v := s.create(t, createReq(e, "source", version))
	for i := range count {
		if err := os.WriteFile(filepath.Join(dir, "source", fmt.Sprint("f", i)), fmt.Append(nil, i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	call := s.copies(t, v, "", e)["snapshot"]
	began := make(chan error, 1)
	go func() { began <- call() }()
	eventually(t, 20*time.Second, "the copy is under way", func() error {
		files, err := filepath.Glob(filepath.Join(dir, ".nfs-csi/tmp/copy*/data/f*"))
		if err == nil && len(files) < 10 {
			err = fmt.Errorf("%d files are there", len(files))
		}
		return err
	})
	command(t, "rpc.nfsd", "0")
	t.Cleanup(func() { command(t, "rpc.nfsd", "8") })
	if files, err := os.ReadDir(filepath.Join(dir, place)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the server there are %d of %d files in their place, %v", len(files), count, err)
	}
	command(t, "rpc.nfsd", "8")
	if err := <-began; err != nil {
		t.Logf("the call under way: %v", err)
	}
	eventually(t, 90*time.Second, "the same call after the restart", call)
	for i := range count {
		name := fmt.Sprint("f", i)
		if b, err := os.ReadFile(filepath.Join(dir, place, name)); err != nil || string(b) != fmt.Sprint(i) {
			t.Fatalf("%s: %q, %v", name, b, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".nfs-csi/tmp/copy*")); err != nil || len(left) > 0 {
		t.Errorf("left in tmp: %q, %v", left, err)
	}
}
