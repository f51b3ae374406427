package nfsmounttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Fixture is a mounter under test and a server it can reach.
type Fixture struct {
	Mounter nfsmount.Mounter
	// Export is offered by the server, writable and readable for this process.
	Export volume.Export
	// Dir is the same directory on the server's own disk.
	Dir string
	// DeadServer is an address where nothing answers.
	DeadServer string
	// Options for every mount, such as "vers=3".
	Options []string
	// Scratch is where mount points can be made.
	Scratch string
}

// TestMounter runs what every nfsmount.Mounter must do.
func TestMounter(t *testing.T, f Fixture) {
	for name, run := range map[string]func(*testing.T, Fixture){
		"ShowsExport":       testShowsExport,
		"ShowsSubDirOnly":   testShowsSubDirOnly,
		"MissingSubDir":     testMissingSubDir,
		"MissingTarget":     testMissingTarget,
		"DeadServer":        testDeadServer,
		"CanceledLeaves":    testCanceledLeavesNothing,
		"ReadOnlyInTable":   testReadOnlyInTable,
		"OddTarget":         testOddTarget,
		"UnmountIdempotent": testUnmountIdempotent,
		"UnmountBusy":       testUnmountBusy,
		"Concurrent":        testConcurrent,
		"Usage":             testUsage,
		"SetMode":           testSetMode,
	} {
		t.Run(name, func(t *testing.T) { run(t, f) })
	}
}

func testShowsExport(t *testing.T, f Fixture) {
	target := f.target(t)
	onServer := filepath.Join(f.Dir, filepath.Base(target))
	write(t, onServer, "from the server")
	f.mount(t, "", target)
	if got := read(t, filepath.Join(target, filepath.Base(onServer))); got != "from the server" {
		t.Errorf("through the mount: %q", got)
	}
	write(t, filepath.Join(target, filepath.Base(onServer)), "from the client")
	if got := read(t, onServer); got != "from the client" {
		t.Errorf("on the server: %q", got)
	}
	if err := os.Remove(onServer); err != nil {
		t.Error(err)
	}
}

func testShowsSubDirOnly(t *testing.T, f Fixture) {
	target, sub := f.target(t), f.serverDir(t)
	write(t, filepath.Join(f.Dir, sub, "in"), "x")
	f.mount(t, sub, target)
	names, err := os.ReadDir(target)
	if err != nil || len(names) != 1 || names[0].Name() != "in" {
		t.Errorf("the mount of %s shows %v, %v", sub, names, err)
	}
	want := nfsmount.Entry{Target: target, Source: f.Export.Source(sub), Root: "/"}
	got, ok := f.entry(t, target)
	if !ok || !got.IsNFS() || got.Target != want.Target || got.Source != want.Source || got.Root != want.Root {
		t.Errorf("table has %+v (%v), want %+v of type nfs", got, ok, want)
	}
}

func testMissingSubDir(t *testing.T, f Fixture) {
	target := f.target(t)
	err := f.Mounter.Mount(t.Context(), f.request(t, "does-not-exist/at-all", target))
	if !errors.Is(err, volume.ErrShareNotFound) {
		t.Errorf("got %v, want ErrShareNotFound", err)
	}
	f.mustBeUnmounted(t, target)
}

func testMissingTarget(t *testing.T, f Fixture) {
	target := filepath.Join(f.target(t), "missing")
	err := f.Mounter.Mount(t.Context(), f.request(t, "", target))
	if !errors.Is(err, os.ErrNotExist) || errors.Is(err, volume.ErrShareNotFound) {
		t.Errorf("got %v, want that the mount point does not exist", err)
	}
}

func testDeadServer(t *testing.T, f Fixture) {
	target := f.target(t)
	m := f.request(t, "", target)
	m.Export.Server = f.DeadServer
	began := time.Now()
	err := f.Mounter.Mount(t.Context(), m)
	if !errors.Is(err, volume.ErrUnreachable) || !strings.Contains(err.Error(), f.DeadServer) {
		t.Errorf("got %v, want ErrUnreachable naming %s", err, f.DeadServer)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	f.mustBeUnmounted(t, target)
}

func testCanceledLeavesNothing(t *testing.T, f Fixture) {
	target := f.target(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Mounter.Mount(ctx, f.request(t, "", target)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was canceled", err)
	}
	f.mustBeUnmounted(t, target)
}

func testReadOnlyInTable(t *testing.T, f Fixture) {
	for _, mode := range []string{"ro", "rw"} {
		target := f.target(t)
		m := f.request(t, "", target)
		m.Options = f.options(t, mode)
		if err := f.Mounter.Mount(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if e, ok := f.entry(t, target); !ok || e.ReadOnly != (mode == "ro") {
			t.Errorf("mounted %s, table has %+v (%v)", mode, e, ok)
		}
	}
}

// The mount table has some characters escaped.
func testOddTarget(t *testing.T, f Fixture) {
	target := filepath.Join(f.target(t), "a b\tc\nd\\040#é")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	f.mustBeUnmounted(t, target)
	f.mount(t, "", target)
	if e, ok := f.entry(t, target); !ok || e.Target != target {
		t.Errorf("table has %+v (%v), want it at %q", e, ok, target)
	}
	if err := errors.Join(f.Mounter.Unmount(t.Context(), target), os.Remove(target)); err != nil {
		t.Error(err)
	}
}

func testUnmountIdempotent(t *testing.T, f Fixture) {
	target := f.target(t)
	if err := f.Mounter.Unmount(t.Context(), target); err != nil {
		t.Errorf("nothing mounted: %v", err)
	}
	if err := f.Mounter.Unmount(t.Context(), filepath.Join(target, "missing")); err != nil {
		t.Errorf("no such directory: %v", err)
	}
	f.mount(t, "", target)
	for range 2 {
		if err := f.Mounter.Unmount(t.Context(), target); err != nil {
			t.Error(err)
		}
		f.mustBeUnmounted(t, target)
	}
	f.mount(t, "", target)
}

func testUnmountBusy(t *testing.T, f Fixture) {
	target, sub := f.target(t), f.serverDir(t)
	write(t, filepath.Join(f.Dir, sub, "open"), "still there")
	f.mount(t, sub, target)
	file, err := os.Open(filepath.Join(target, "open"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.Mounter.Unmount(t.Context(), target); err != nil {
		t.Error(err)
	}
	f.mustBeUnmounted(t, target)
	buf := make([]byte, 32)
	if n, err := file.Read(buf); err != nil || string(buf[:n]) != "still there" {
		t.Errorf("the open file reads %q, %v", buf[:n], err)
	}
}

func testConcurrent(t *testing.T, f Fixture) {
	const n = 8
	var wg sync.WaitGroup
	targets, subs := make([]string, n), make([]string, n)
	for i := range n {
		targets[i], subs[i] = f.target(t), f.serverDir(t)
	}
	for i := range n {
		m := f.request(t, subs[i], targets[i])
		wg.Go(func() {
			if err := f.Mounter.Mount(t.Context(), m); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		if e, ok := f.entry(t, targets[i]); !ok || e.Source != f.Export.Source(subs[i]) {
			t.Errorf("target %d has %+v (%v), want %s", i, e, ok, subs[i])
		}
	}
}

func testUsage(t *testing.T, f Fixture) {
	target, sub := f.target(t), f.serverDir(t)
	f.mount(t, sub, target)
	e, ok := f.entry(t, target)
	if !ok || e.Server == "" {
		t.Errorf("table has %+v (%v), want it with its server", e, ok)
	}
	u, err := f.Mounter.Usage(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for what, a := range map[string]nfsmount.Amount{"bytes": u.Bytes, "inodes": u.Inodes} {
		if a.Total <= 0 || a.Available <= 0 || a.Used < 0 || a.Used+a.Available > a.Total {
			t.Errorf("%s: %+v", what, a)
		}
	}
}

func testSetMode(t *testing.T, f Fixture) {
	target, sub := f.target(t), f.serverDir(t)
	f.mount(t, sub, target)
	e, ok := f.entry(t, target)
	if !ok {
		t.Fatal("it is not in the table")
	}
	for range 2 {
		if err := f.Mounter.SetMode(t.Context(), e, 0o2771); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(f.Dir, sub)); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o771 {
			t.Errorf("on the server: %v, %v", info.Mode(), err)
		}
	}
}

// target makes an empty directory that is unmounted and removed with the test.
func (f Fixture) target(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(f.Scratch, "target-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(f.Mounter.Unmount(ctx, dir), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// serverDir makes a directory on the server and returns its path in the export.
func (f Fixture) serverDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(f.Dir, "sub-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Base(dir)
}

func (f Fixture) options(t *testing.T, more ...string) nfsmount.Options {
	t.Helper()
	o, err := nfsmount.ParseOptions(slices.Concat(f.Options, more))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (f Fixture) request(t *testing.T, sub, target string) nfsmount.Mount {
	t.Helper()
	return nfsmount.Mount{Export: f.Export, SubDir: sub, Target: target, Options: f.options(t)}
}

func (f Fixture) mount(t *testing.T, sub, target string) {
	t.Helper()
	if err := f.Mounter.Mount(t.Context(), f.request(t, sub, target)); err != nil {
		t.Fatal(err)
	}
}

func (f Fixture) entry(t *testing.T, target string) (nfsmount.Entry, bool) {
	t.Helper()
	table, err := f.Mounter.Mounts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, mounted, err := f.Mounter.MountAt(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(table, func(e nfsmount.Entry) bool { return e.Target == target }) != mounted ||
		mounted && !slices.Contains(table, e) {
		t.Errorf("at %s there is %+v (%v), the table is %+v", target, e, mounted, table)
	}
	return e, mounted
}

func (f Fixture) mustBeUnmounted(t *testing.T, target string) {
	t.Helper()
	if e, ok := f.entry(t, target); ok {
		t.Errorf("%s is mounted: %+v", target, e)
	}
	if names, err := os.ReadDir(target); err != nil || len(names) != 0 {
		t.Errorf("%s has %v, %v, want an empty directory", target, names, err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(fmt.Errorf("test file: %w", err))
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
