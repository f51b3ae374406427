package nfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// victimVariable makes this program a controller that is going to be killed.
const victimVariable = "NFS_TEST_VICTIM"

// order is what a victim is to do.
type order struct {
	Export volume.Export
	Name   string
	Delete bool
	Mounts string
}

func volumes(ctx context.Context, mounts string) (*store.Store, func() error, error) {
	k, err := nfsmount.NewKernel(nfsmount.DefaultKernelConfig())
	if err != nil {
		return nil, nil, err
	}
	shares, err := share.New(ctx, share.Config{Mounter: k, Dir: mounts, IdleTimeout: time.Minute})
	if err != nil {
		return nil, nil, err
	}
	s, err := store.New(ctx, store.Config{Shares: shares, ReclaimWorkers: 4, CopyWorkers: 4})
	if err != nil {
		return nil, nil, err
	}
	return s, func() error { return errors.Join(s.Close(ctx), shares.Close(ctx)) }, nil
}

func (o order) do(ctx context.Context, s *store.Store) error {
	if o.Delete {
		return s.Delete(ctx, volume.ID{Export: o.Export, SubDir: o.Name, Name: o.Name}, nil)
	}
	_, err := s.Create(ctx, store.CreateRequest{Name: o.Name, Params: volume.Params{Export: o.Export}})
	return err
}

// victim carries out its order over and over, each time saying so first, until
// it is killed.
func victim() {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(victimVariable)), &o); err != nil {
		panic(err)
	}
	ctx := context.Background()
	s, _, err := volumes(ctx, o.Mounts)
	if err != nil {
		panic(err)
	}
	// Mount first, so that the kill hits the work and not the mount.
	if err := s.Exists(ctx, volume.ID{Export: o.Export, SubDir: "none", Name: "none"}, nil); !errors.Is(err, volume.ErrNotFound) {
		panic(err)
	}
	fmt.Println("ready")
	if err := o.do(ctx, s); err != nil {
		panic(err)
	}
	select {} // until killed
}

// TestKilled kills a controller process at a random moment of a create or a
// delete; the same call to the next process completes it exactly once.
func TestKilled(t *testing.T) {
	const rounds = 8
	for fs, export := range exports(t) {
		for _, deleting := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s delete=%v", fs, deleting), func(t *testing.T) {
				for i := range rounds {
					killOnce(t, order{
						Export: export, Name: fmt.Sprintf("killed-%v-%d", deleting, i), Delete: deleting, Mounts: filepath.Join(t.TempDir(), "mounts"),
					})
				}
			})
		}
	}
}

func killOnce(t *testing.T, o order) {
	t.Helper()
	dir := filepath.Join(o.Export.Share, o.Name)
	record := filepath.Join(o.Export.Share, ".nfs-csi/volumes", o.Name, ".record.json")
	if o.Delete {
		prepare(t, o)
	}
	killVictim(t, o)

	s, done, err := volumes(context.WithoutCancel(t.Context()), o.Mounts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := done(); err != nil {
			t.Error(err)
		}
	}()
	if err := o.do(t.Context(), s); err != nil {
		t.Fatalf("the same call again: %v", err)
	}
	for _, path := range []string{dir, record} {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) != o.Delete || err != nil && !o.Delete {
			t.Errorf("%s after the call: %v", path, err)
		}
	}
	if !o.Delete {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("the volume's directory: %v, %v", info, err)
		}
		o.Delete = true
		if err := o.do(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	mustReclaim(t, o)
}

// prepare makes the volume that is to be deleted, with something in it.
func prepare(t *testing.T, o order) {
	t.Helper()
	s, done, err := volumes(context.WithoutCancel(t.Context()), o.Mounts)
	if err != nil {
		t.Fatal(err)
	}
	o.Delete = false
	if err := errors.Join(o.do(t.Context(), s), done()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		f := filepath.Join(o.Export.Share, o.Name, fmt.Sprint("f", i))
		if err := os.WriteFile(f, []byte("data"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func killVictim(t *testing.T, o order) {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), victimVariable+"="+string(b))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatalf("the victim did not begin: %v", err)
	}
	// A create or a delete takes a few milliseconds here.
	time.Sleep(time.Duration(rand.Int64N(int64(15 * time.Millisecond))))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

func mustReclaim(t *testing.T, o order) {
	t.Helper()
	trash := filepath.Join(o.Export.Share, ".nfs-csi/trash")
	deadline := time.Now().Add(20 * time.Second)
	for {
		left, err := os.ReadDir(trash)
		var mine []string
		for _, e := range left {
			if strings.HasPrefix(e.Name(), o.Name+".") {
				mine = append(mine, e.Name())
			}
		}
		if err == nil && len(mine) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left in the trash: %v, %v", mine, err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
