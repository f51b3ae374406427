package nfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// The node with a black-holed server: everything ends in its time, says why, and
// costs one thread; volumes of another server are as quick as ever.
func TestNodeOnADeadServer(t *testing.T) {
	// In the lab both servers are one: see TestUnmountOfADeadServer.
	for version, otherVersion := range map[string]string{"vers=4.2": "vers=3", "vers=3": "vers=4.1"} {
		t.Run(version, func(t *testing.T) {
			export := exports(t)["ext4"]
			server := newGoingServer(t)
			dead := volume.Export{Server: goingAddress, Share: export.Share}
			s := plugin(t)
			well := publishReq(t, export, serverDir(t, export), otherVersion)
			s.publish(t, well)
			var reqs []*csi.NodePublishVolumeRequest
			for range 3 {
				req := publishReq(t, dead, serverDir(t, export), version)
				s.publish(t, req)
				reqs = append(reqs, req)
				if err := s.stats(t, req); err != nil {
					t.Error(err)
				}
			}
			if got := s.health(t, reqs[0]) + s.storageHealth(t); got != "" {
				t.Errorf("all is well, but: %s", got)
			}
			server.goAway(t)

			mustFail(t, s.stats(t, reqs[0]), codes.Unavailable, goingAddress)
			threads := taskCount(t)
			for range 3 {
				for _, req := range reqs {
					mustFail(t, s.stats(t, req), codes.Unavailable, goingAddress)
					if got := s.health(t, req); got != "ServerUnreachable" {
						t.Errorf("health %q", got)
					}
				}
				if got := s.storageHealth(t); !strings.HasPrefix(got, "ServerUnreachable: ") || !strings.Contains(got, goingAddress) {
					t.Errorf("storage health %q", got)
				}
			}
			if grown := taskCount(t) - threads; grown > 2 {
				t.Errorf("%d more threads after retries", grown)
			}
			within(t, time.Second, "stats of another server's volume", func() {
				if err := s.stats(t, well); err != nil {
					t.Error(err)
				}
			})
			again := publishReq(t, dead, "any", version)
			within(t, 10*time.Second, "publish", func() {
				_, err := s.NodePublishVolume(t.Context(), again)
				mustFail(t, err, codes.Unavailable, goingAddress)
			})
			if got := s.health(t, again); got != "ServerUnreachable" {
				t.Errorf("health of what could not be published: %q", got)
			}
			for _, req := range reqs {
				s.unpublish(t, req)
			}
		})
	}
}

// With soft the kernel gives up on a server that is away, which is no reason to
// take the mount from the pod that has it.
func TestSoftMountSurvivesPublish(t *testing.T) {
	export := exports(t)["xfs"]
	server := newGoingServer(t)
	s := plugin(t)
	req := publishReq(t, volume.Export{Server: goingAddress, Share: export.Share}, serverDir(t, export), "vers=4.2,soft,timeo=5,retrans=1")
	s.publish(t, req)
	open, err := os.Create(filepath.Join(req.GetTargetPath(), "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	before := mountAt(t, req.GetTargetPath()).ID
	server.goAway(t)
	deadline := time.Now().Add(8 * time.Second)
	for time.Now().Before(deadline) {
		if _, err := s.NodePublishVolume(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	server.come(t)
	if e := mountAt(t, req.GetTargetPath()); e == nil || e.ID != before {
		t.Errorf("the mount is now %+v, it was %d", e, before)
	}
	eventually(t, time.Minute, "writing goes on", func() error { _, err := open.WriteString("x"); return err })
}

// The controller with a black-holed server that it has mounted already.
func TestControllerOnADeadServer(t *testing.T) {
	for version, otherVersion := range map[string]string{"vers=4.2": "vers=3", "vers=3": "vers=4.1"} {
		t.Run(version, func(t *testing.T) {
			export := exports(t)["xfs"]
			server := newGoingServer(t)
			dead := volume.Export{Server: goingAddress, Share: export.Share}
			s := plugin(t)
			s.create(t, createReq(dead, "on-the-dead", version))
			s.create(t, createReq(export, "on-the-other", otherVersion))
			server.goAway(t)
			time.Sleep(1100 * time.Millisecond) // it answered a moment ago

			try := func(n int) {
				within(t, 10*time.Second, "create", func() {
					_, err := s.CreateVolume(t.Context(), createReq(dead, fmt.Sprint("dead-", n), version))
					mustFail(t, err, codes.Unavailable, goingAddress)
				})
			}
			try(0)
			threads := taskCount(t)
			var wg sync.WaitGroup
			for n := range 20 {
				wg.Go(func() { try(n % 10) })
			}
			for n := range 5 {
				within(t, 2*time.Second, "create on another server", func() {
					s.create(t, createReq(export, fmt.Sprint("other-", n), otherVersion))
				})
			}
			wg.Wait()
			if grown := taskCount(t) - threads; grown > 4 {
				t.Errorf("%d more threads after retries", grown)
			}
			server.come(t)
			eventually(t, time.Minute, "create on the server that came back", func() error {
				_, err := s.CreateVolume(t.Context(), createReq(dead, "on-the-dead", version))
				return err
			})
		})
	}
}

// nfsd is stopped and started: calls fail in time and then succeed, and what is
// published goes on without a new mount.
func TestServerRestarts(t *testing.T) {
	for _, version := range []string{"vers=4.2", "vers=3"} {
		t.Run(version, func(t *testing.T) {
			export := exports(t)["ext4"]
			s := plugin(t)
			s.create(t, createReq(export, "before", version))
			req := publishReq(t, export, serverDir(t, export), version)
			s.publish(t, req)
			command(t, "rpc.nfsd", "0")
			t.Cleanup(func() { command(t, "rpc.nfsd", "8") })
			time.Sleep(1100 * time.Millisecond)
			within(t, 10*time.Second, "create", func() {
				_, err := s.CreateVolume(t.Context(), createReq(export, "meanwhile", version))
				mustFail(t, err, codes.Unavailable, export.Server)
			})
			mustFail(t, s.stats(t, req), codes.Unavailable, export.Server)
			late := publishReq(t, export, "before", version)
			within(t, 10*time.Second, "publish", func() {
				_, err := s.NodePublishVolume(t.Context(), late)
				mustFail(t, err, codes.Unavailable, export.Server)
			})
			command(t, "rpc.nfsd", "8")
			eventually(t, 90*time.Second, "create after the restart", func() error {
				_, err := s.CreateVolume(t.Context(), createReq(export, "before", version))
				return err
			})
			if err := os.WriteFile(filepath.Join(req.GetTargetPath(), "f"), []byte("on"), 0o644); err != nil {
				t.Errorf("the pod does not go on: %v", err)
			}
			eventually(t, 20*time.Second, "stats after the restart", func() error { return s.stats(t, req) })
			s.publish(t, late)
		})
	}
}

// The export is replaced by another file system, so that every handle of it is stale.
func TestStaleShareAndMount(t *testing.T) {
	for i, version := range []string{"vers=4.2", "vers=3"} {
		t.Run(version, func(t *testing.T) {
			parent := exports(t)["ext4"]
			dir := filepath.Join(parent.Share, serverDir(t, parent))
			export := volume.Export{Server: parent.Server, Share: dir}
			withdraw := offer(t, dir, 700+2*i)
			t.Cleanup(func() { withdraw() })
			s := plugin(t)
			s.create(t, createReq(export, "old", version))
			req := publishReq(t, export, "old", version)
			s.publish(t, req)

			withdraw()
			withdraw = offer(t, dir, 701+2*i)
			mkdir(t, filepath.Join(dir, "old"))
			time.Sleep(1100 * time.Millisecond)

			within(t, 10*time.Second, "create", func() { s.create(t, createReq(export, "new", version)) })
			if _, err := os.Stat(filepath.Join(dir, "new")); err != nil {
				t.Error(err)
			}
			if got := s.health(t, req); got != "StaleMount" {
				t.Errorf("health %q", got)
			}
			if _, err := s.NodePublishVolume(t.Context(), req); err != nil {
				t.Errorf("publish over the stale mount: %v", err)
			}
			if err := os.WriteFile(filepath.Join(req.GetTargetPath(), "f"), nil, 0o644); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "old/f")); err != nil {
				t.Error(err)
			}
		})
	}
}

// offer exports a new file system at dir.
func offer(t *testing.T, dir string, fsid int) (withdraw func()) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=777"); err != nil {
		t.Fatal(err)
	}
	command(t, "exportfs", "-o", fmt.Sprintf("rw,no_root_squash,no_subtree_check,insecure,fsid=%d", fsid), "*:"+dir)
	return func() {
		command(t, "exportfs", "-u", "*:"+dir)
		command(t, "exportfs", "-f")
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}
}
