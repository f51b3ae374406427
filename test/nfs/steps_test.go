package nfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// stepVariable makes this program a controller that kills itself at a step.
const stepVariable = "NFS_TEST_STEP"

// call is what such a controller is to do, and at which of its steps it dies.
type call struct {
	Export  volume.Export
	Version string
	What    string
	Step    int
	Mounts  string
}

// storeAt is a store on a client of its own, whose process dies at the n-th step
// that changes something on the server, 0 for never.
func storeAt(ctx context.Context, c call, n int) (*store.Store, func() error, error) {
	k, err := nfsmount.NewKernel(nfsmount.DefaultKernelConfig())
	if err != nil {
		return nil, nil, err
	}
	shares, err := share.New(ctx, share.Config{Mounter: k, Dir: c.Mounts, IdleTimeout: time.Minute})
	if err != nil {
		return nil, nil, err
	}
	s, err := store.New(ctx, store.Config{
		Shares: shares, ReclaimWorkers: 2, CopyWorkers: 4, MountOptions: []string{c.Version, "nosharecache"}, ClusterID: "lab",
		Step: func(name string) {
			if n--; n == 0 {
				fmt.Println(name)
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {} // until it arrives
			}
		},
	})
	if err != nil {
		return nil, nil, err
	}
	return s, func() error { return errors.Join(s.Close(ctx), shares.Close(ctx)) }, nil
}

func (c call) id(name string) volume.ID {
	subDir := "team/" + name
	policy := volume.OnDeleteDelete
	if c.What == "archive" {
		policy = volume.OnDeleteArchive
	}
	return volume.ID{Export: c.Export, SubDir: subDir, Name: name, OnDelete: policy}
}

func (c call) create(ctx context.Context, s *store.Store, name string, src *store.Source) error {
	req := store.CreateRequest{
		Name: name, MountOptions: []string{c.Version, "nosharecache"}, Source: src,
		Params: volume.Params{Export: c.Export, SubDir: c.id(name).SubDir, OnDelete: c.id(name).OnDelete, Mode: 0o2770},
	}
	req.Params.UID, req.Params.GID = ids(77, 78)
	if c.What == "reuse" { // whatever the volume, its claim is the same
		req.Params.SubDir, req.Params.Reuse = "team/${pvc.metadata.name}", true
		req.Params.Metadata = map[string]string{volume.KeyPVCNamespace: "team", volume.KeyPVCName: "source"}
	}
	_, err := s.Create(ctx, req)
	return err
}

func (c call) snapshotID() volume.SnapshotID {
	return volume.SnapshotID{Export: c.Export, Name: "snap", Source: "source"}
}

// prepare makes what the call needs.
func (c call) prepare(ctx context.Context, s *store.Store) error {
	err := c.create(ctx, s, "source", nil)
	for i := range 5 {
		err = errors.Join(err, os.WriteFile(filepath.Join(c.Export.Share, "team/source", fmt.Sprint("f", i)), []byte("data"), 0o644))
	}
	if err == nil && (c.What == "restore" || c.What == "delete snapshot") {
		_, err = s.CreateSnapshot(ctx, store.SnapshotRequest{Name: "snap", Source: c.id("source")})
	}
	if err == nil && strings.HasSuffix(c.What, "group") {
		err = c.create(ctx, s, "second", nil)
	}
	if err == nil && c.What == "delete group" {
		_, err = s.CreateGroup(ctx, c.group())
	}
	return err
}

func (c call) group() store.GroupRequest {
	return groupReq("group", store.Created{ID: c.id("second")}, store.Created{ID: c.id("source")})
}

func (c call) do(ctx context.Context, s *store.Store) error {
	source, snapshot := c.id("source"), c.snapshotID()
	switch c.What {
	case "create", "reuse":
		return c.create(ctx, s, "new", nil)
	case "delete", "archive":
		return s.Delete(ctx, source, nil)
	case "snapshot":
		_, err := s.CreateSnapshot(ctx, store.SnapshotRequest{Name: "snap", Source: source})
		return err
	case "delete snapshot":
		return s.DeleteSnapshot(ctx, snapshot, nil)
	case "group":
		_, err := s.CreateGroup(ctx, c.group())
		return err
	case "delete group":
		return s.DeleteGroup(ctx, volume.GroupID{Export: c.Export, Name: "group"}, nil, nil)
	case "clone":
		return c.create(ctx, s, "new", &store.Source{Volume: &source})
	}
	return c.create(ctx, s, "new", &store.Source{Snapshot: &snapshot})
}

// after is what is then on the server.
func (c call) after() []string {
	volumeOf := func(name string, files bool) []string {
		list := []string{"team", ".nfs-csi/volumes/team", ".nfs-csi/names/" + name}
		list = append(list, live("team/"+name)...)
		if files {
			list = append(list, inside("team/"+name)...)
		}
		return list
	}
	source := volumeOf("source", true)
	snapshot := append([]string{".nfs-csi/snapshots/snap", ".nfs-csi/snapshots/snap/record.json", ".nfs-csi/snapshots/snap/data"}, inside(".nfs-csi/snapshots/snap/data")...)
	switch c.What {
	case "create":
		return append(source, volumeOf("new", false)...)
	case "reuse":
		list := append(live("team/source"), inside("team/source")...)
		return append(list, "team", ".nfs-csi/volumes/team", ".nfs-csi/names/new", ".nfs-csi/"+catalog.ReusePath("team/source"))
	case "delete":
		return nil
	case "archive":
		return append([]string{"team", "team/archived-source"}, inside("team/archived-source")...)
	case "snapshot":
		return append(source, snapshot...)
	case "delete snapshot":
		return source
	case "group":
		list := slices.Concat(source, volumeOf("second", false))
		list = append(list, ".nfs-csi/groups/group", ".nfs-csi/groups/group/record.json")
		for _, member := range []string{"1", "2"} {
			at := ".nfs-csi/groups/group/" + member
			list = append(list, at, at+"/record.json", at+"/data")
		}
		return append(list, inside(".nfs-csi/groups/group/2/data")...)
	case "delete group":
		return append(source, volumeOf("second", false)...)
	case "clone":
		return append(source, volumeOf("new", true)...)
	}
	return append(append(source, volumeOf("new", true)...), snapshot...)
}

func inside(dir string) (files []string) {
	for i := range 5 {
		files = append(files, dir+fmt.Sprint("/f", i))
	}
	return files
}

// dying carries out its call until it dies of it.
func dying() {
	var c call
	if err := json.Unmarshal([]byte(os.Getenv(stepVariable)), &c); err != nil {
		panic(err)
	}
	s, done, err := storeAt(context.Background(), c, c.Step)
	if err != nil {
		panic(err)
	}
	if err := errors.Join(c.do(context.Background(), s), done()); err != nil {
		panic(err)
	}
	fmt.Println("done")
	os.Exit(0)
}

// TestKilledAtEveryStep kills a controller process with SIGKILL before each of the
// steps of each call, and after the last; the next process completes the call
// exactly once and leaves nothing behind.
func TestKilledAtEveryStep(t *testing.T) {
	for what, version := range map[string]string{
		"create": "vers=3", "delete": "vers=4.2", "archive": "vers=3", "snapshot": "vers=4.2", "delete snapshot": "vers=3", "clone": "vers=3", "restore": "vers=3",
		"group": "vers=4.2", "delete group": "vers=3", "reuse": "vers=3",
	} {
		t.Run(what+" "+version, func(t *testing.T) {
			e, dir := export(t, clientVersions()[version], "rw,no_root_squash", 0o777)
			c := call{Export: e, Version: version, What: what, Mounts: filepath.Join(t.TempDir(), "mounts")}
			var steps []string
			for c.Step = 1; ; c.Step++ {
				step, died := c.kill(t)
				c.complete(t, dir)
				if t.Failed() {
					t.Fatalf("killed at %d, %s", c.Step, step)
				}
				if !died {
					break
				}
				steps = append(steps, step)
			}
			if len(steps) < 2 {
				t.Errorf("killed at %q only", steps)
			}
			t.Logf("killed at %q", steps)
		})
	}
}

// kill prepares the server and has the call killed at its step, if it has so many.
func (c call) kill(t *testing.T) (step string, died bool) {
	t.Helper()
	c.with(t, c.prepare)
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), stepVariable+"="+string(b))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.Success()) {
		t.Fatal(err)
	}
	step = strings.TrimSpace(string(out))
	return step, step != "done"
}

func (c call) with(t *testing.T, do func(context.Context, *store.Store) error) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	s, done, err := storeAt(ctx, c, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(ctx, s), done()); err != nil {
		t.Error(err)
	}
}

// complete makes the same call again, twice, and wipes the server.
func (c call) complete(t *testing.T, dir string) {
	t.Helper()
	c.with(t, func(ctx context.Context, s *store.Store) error { return errors.Join(c.do(ctx, s), c.do(ctx, s)) })
	want := c.after()
	slices.Sort(want)
	mustContain(t, dir, slices.Compact(want)...)
	c.with(t, func(ctx context.Context, s *store.Store) error {
		eventually(t, 20*time.Second, "the trash is reclaimed", func() error {
			return errors.Join(s.Delete(ctx, c.id("none"), nil), empty(filepath.Join(dir, ".nfs-csi/trash")))
		})
		return nil
	})
	if left, err := os.ReadDir(filepath.Join(dir, ".nfs-csi/tmp")); err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), "record-") }) {
		t.Errorf("left in tmp: %v, %v", left, err)
	}
	for _, name := range []string{"team", ".nfs-csi"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func empty(dir string) error {
	left, err := os.ReadDir(dir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d are left", len(left))
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return err
}
