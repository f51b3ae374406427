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
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
		"group": "vers=4.2", "delete group": "vers=3", "reuse": "vers=3", "delete below": "vers=4.2",
	} {
		t.Run(what+" "+version, func(t *testing.T) {
			e, dir := export(t, clientVersions()[version], "rw,no_root_squash", 0o777)
			if what == "delete below" {
				e, dir = exportBelow(t, clientVersions()[version], "ro,no_root_squash")
			}
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
	step = strings.TrimSpace(string(out))
	if err == nil && step == "done" {
		return step, false
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("at step %d, %q, it was not killed: %v", c.Step, step, err)
	}
	return step, true
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
