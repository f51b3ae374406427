package share

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

type lab struct {
	cache  *Cache
	fake   *nfsmounttest.Fake
	a, b   volume.Export // on different servers
	dirA   string
	points string
}

func newLab(t *testing.T) lab {
	t.Helper()
	l := lab{
		fake: nfsmounttest.NewFake(), dirA: t.TempDir(), points: t.TempDir(),
		a: volume.Export{Server: "a.test", Share: "/e"}, b: volume.Export{Server: "b.test", Share: "/e"},
	}
	l.fake.AddExport(l.a, l.dirA)
	l.fake.AddExport(l.b, t.TempDir())
	l.cache = l.open(t)
	return l
}

func (l lab) open(t *testing.T) *Cache {
	t.Helper()
	c, err := New(t.Context(), Config{Mounter: l.fake, Dir: l.points, IdleTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (l lab) acquire(t *testing.T, e volume.Export, options ...string) *Handle {
	t.Helper()
	h, err := l.cache.Acquire(t.Context(), e, options)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (l lab) mounted(t *testing.T) int {
	t.Helper()
	table, err := l.fake.Mounts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(table)
}

func (l lab) close(t *testing.T) {
	t.Helper()
	if err := l.cache.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	if n := l.mounted(t); n != 0 {
		t.Errorf("%d mounts are left after Close", n)
	}
	if left, err := os.ReadDir(l.points); err != nil || len(left) != 0 {
		t.Errorf("mount points left: %v, %v", left, err)
	}
}

func TestOneMountForAll(t *testing.T) {
	l := newLab(t)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			h, err := l.cache.Acquire(t.Context(), l.a, []string{"hard", "nosuid"})
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Release()
			if _, err := h.Root().Stat("."); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := l.fake.MountCalls(); n != 1 {
		t.Errorf("%d mounts for one export, want 1", n)
	}
	l.acquire(t, l.a, "soft").Release()
	l.acquire(t, l.b, "hard").Release()
	if n := l.fake.MountCalls(); n != 3 {
		t.Errorf("%d mounts, want 3: other options and other exports have their own", n)
	}
	h, err := l.cache.AcquireAny(t.Context(), l.a, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	if n := l.fake.MountCalls(); n != 3 {
		t.Errorf("AcquireAny mounted although the export was mounted")
	}
	l.close(t)
}

func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		h := l.acquire(t, l.a)
		time.Sleep(time.Hour)
		if n := l.mounted(t); n != 1 {
			t.Fatalf("%d mounts while in use", n)
		}
		h.Release()
		h.Release() // counts once
		time.Sleep(50 * time.Second)
		l.acquire(t, l.a).Release() // restarts the idle time
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if n := l.mounted(t); n != 1 {
			t.Errorf("%d mounts before the idle timeout", n)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := l.mounted(t); n != 0 {
			t.Errorf("%d mounts after the idle timeout", n)
		}
		l.acquire(t, l.a).Release()
		if n := l.fake.MountCalls(); n != 2 {
			t.Errorf("%d mounts made, want 2", n)
		}
		l.close(t)
	})
}

func TestHangIsBoundedAndStaysAlone(t *testing.T) {
	l := newLab(t)
	release := l.fake.Hang(l.a.Server)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.cache.Acquire(ctx, l.a, nil); !errors.Is(err, volume.ErrUnreachable) {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
	l.acquire(t, l.b).Release()
	release()
	// The second caller gets the mount that the first one did not wait for.
	l.acquire(t, l.a).Release()
	if n := l.fake.MountCalls(); n != 2 {
		t.Errorf("%d mounts, want one of each server", n)
	}
	l.close(t)
}

func TestCloseEndsAHangingMount(t *testing.T) {
	l := newLab(t)
	defer l.fake.Hang(l.a.Server)()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.cache.Acquire(ctx, l.a, nil); err == nil {
		t.Fatal("acquired a hanging server")
	}
	l.close(t)
	if _, err := l.cache.Acquire(t.Context(), l.b, nil); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestFailureIsNotKept(t *testing.T) {
	l := newLab(t)
	late := volume.Export{Server: "a.test", Share: "/late"}
	if _, err := l.cache.Acquire(t.Context(), late, nil); !errors.Is(err, volume.ErrShareNotFound) {
		t.Fatalf("got %v, want ErrShareNotFound", err)
	}
	l.fake.AddExport(late, t.TempDir())
	l.acquire(t, late).Release()
	if _, err := l.cache.Acquire(t.Context(), l.a, []string{"vers=7"}); !errors.Is(err, volume.ErrMountOptions) {
		t.Errorf("got %v, want ErrMountOptions", err)
	}
	l.close(t)
}

func TestInvalidate(t *testing.T) {
	l := newLab(t)
	old := l.acquire(t, l.a)
	old.Invalidate()
	fresh := l.acquire(t, l.a)
	if n := l.fake.MountCalls(); n != 2 {
		t.Errorf("%d mounts, want a second one", n)
	}
	if _, err := old.Root().Stat("."); err != nil {
		t.Errorf("the old one is in use still: %v", err)
	}
	old.Release()
	fresh.Release()
	l.close(t)
}

func TestCloseWaitsForUsers(t *testing.T) {
	l := newLab(t)
	h := l.acquire(t, l.a)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := l.cache.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	h.Release()
	l.close(t)
}

func TestLeftoversAreCleanedButNothingElse(t *testing.T) {
	l := newLab(t)
	l.acquire(t, l.a) // and the process dies
	foreign := filepath.Join(l.points, "not-ours")
	for _, dir := range []string{foreign, filepath.Join(l.points, dirPrefix+"empty")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(l.dirA, "data"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	l.cache = l.open(t)
	if n := l.mounted(t); n != 0 {
		t.Errorf("%d mounts are left", n)
	}
	if left, err := os.ReadDir(l.points); err != nil || len(left) != 1 || left[0].Name() != "not-ours" {
		t.Errorf("left are %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(l.dirA, "data")); err != nil {
		t.Errorf("the export lost data: %v", err)
	}
}

func TestCleanRemovesNoContent(t *testing.T) {
	points := t.TempDir()
	content := filepath.Join(points, dirPrefix+"x", "data")
	if err := os.MkdirAll(content, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), Config{Mounter: nfsmounttest.NewFake(), Dir: points, IdleTimeout: time.Minute}); err == nil {
		t.Error("started over a directory with content")
	}
	if _, err := os.Stat(content); err != nil {
		t.Error(err)
	}
}

func TestMountsAreSafe(t *testing.T) {
	rec := &recorder{Fake: nfsmounttest.NewFake()}
	e := volume.Export{Server: "a.test", Share: "/e"}
	rec.AddExport(e, t.TempDir())
	c, err := New(t.Context(), Config{Mounter: rec, Dir: t.TempDir(), IdleTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Acquire(t.Context(), e, []string{"ro", "exec", "suid", "dev", "hard"})
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	want, err := nfsmount.ParseOptions([]string{"nosuid,nodev,noexec,hard,lookupcache=positive"})
	if err != nil {
		t.Fatal(err)
	}
	if rec.options.String() != want.String() {
		t.Errorf("mounted with %s, want %s", rec.options, want)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

type recorder struct {
	*nfsmounttest.Fake
	options nfsmount.Options
}

func (r *recorder) Mount(ctx context.Context, m nfsmount.Mount) error {
	r.options = m.Options
	return r.Fake.Mount(ctx, m)
}

// What is kept with a mount is opened once, and closed before the unmount.
func TestKeep(t *testing.T) {
	l := newLab(t)
	h, err := l.cache.Acquire(t.Context(), l.a, nil)
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	kept := &keepsake{}
	open := func(root *os.Root) (io.Closer, error) {
		opened++
		kept.root = root
		if opened == 1 {
			return nil, os.ErrPermission
		}
		return kept, nil
	}
	if _, err := h.Keep(open); !errors.Is(err, os.ErrPermission) {
		t.Errorf("got %v, want what open says", err)
	}
	for range 2 {
		if got, err := h.Keep(open); err != nil || got != kept {
			t.Errorf("got %v, %v", got, err)
		}
	}
	if opened != 2 {
		t.Errorf("opened %d times", opened)
	}
	h.Invalidate()
	if kept.closed {
		t.Error("closed while in use")
	}
	h.Release()
	if err := l.cache.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if !kept.closed || kept.err != nil {
		t.Errorf("closed: %v, its root then: %v", kept.closed, kept.err)
	}
}

type keepsake struct {
	root   *os.Root
	closed bool
	err    error
}

func (k *keepsake) Close() error {
	k.closed = true
	_, k.err = k.root.Stat(".")
	return nil
}
