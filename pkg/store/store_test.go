package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store/reclaim"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestMain(m *testing.M) {
	syscall.Umask(0) // as nfsplugin does
	os.Exit(m.Run())
}

type lab struct {
	*Store
	fake   *nfsmounttest.Fake
	export volume.Export
	dir    string // the export on the server
	// clusterID of the controllers that start.
	clusterID string
	all       []*Store
	awaited   *sync.Map // steps that calls are to come to
}

func (l *lab) target(export volume.Export, subDir string, options []string) session.Target {
	return l.inventory.Target(session.Key{Export: export, SubDir: subDir}, options)
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{
		fake: nfsmounttest.NewFake(), dir: t.TempDir(),
		export:  volume.Export{Server: "nfs.test", Share: "/export"},
		awaited: &sync.Map{},
	}
	l.fake.AddExport(l.export, l.dir)
	t.Cleanup(func() { l.mustHaveMet(t) })
	l.Store = l.start(t)
	return l
}

// start is a controller process coming up on the same export.
func (l *lab) start(t *testing.T) *Store {
	t.Helper()
	shares, err := share.New(t.Context(), share.Config{Mounter: l.fake, Dir: t.TempDir(), IdleTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), Config{Shares: shares, ReclaimWorkers: 4, CopyWorkers: 4, ClusterID: l.clusterID})
	if err != nil {
		t.Fatal(err)
	}
	s.reclaimWith(t, reclaim.Config{})
	l.all = append(l.all, s)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(s.Close(ctx), shares.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reclaimWith reclaims from now on with another configuration.
func (s *Store) reclaimWith(t *testing.T, cfg reclaim.Config) {
	t.Helper()
	s.reclaim.Close()
	cfg.Exports, cfg.Workers, cfg.Upkeep, cfg.Debounce = s.exports, 4, s.upkeep, time.Nanosecond
	var err error
	if s.reclaim, err = reclaim.New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

func (l *lab) request(name string) CreateRequest {
	return CreateRequest{Name: name, Params: volume.Params{Export: l.export}, Size: SizeRange{Required: 1 << 30}}
}

func (l *lab) create(t *testing.T, name string) volume.ID {
	t.Helper()
	v, err := l.Create(t.Context(), l.request(name))
	if err != nil {
		t.Fatal(err)
	}
	return v.ID
}

func (l *lab) id(subDir string) volume.ID {
	return volume.ID{Export: l.export, SubDir: subDir, Name: subDir}
}

// put writes a file on the server.
func (l *lab) put(t *testing.T, path string) {
	t.Helper()
	p := filepath.Join(l.dir, path)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(path), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree lists what is on the server once nothing is left to reclaim; files in
// tmp, which live for an hour, are left out.
func (l *lab) tree(t *testing.T) []string {
	t.Helper()
	for _, s := range l.all {
		s.reclaim.Wait()
	}
	var names []string
	err := filepath.WalkDir(l.dir, func(p string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(l.dir, p)
		if err = errors.Join(err, relErr); err != nil || rel == "." {
			return err
		}
		if rel == volume.MetaDir+"/"+catalog.TempDir {
			return fs.SkipDir
		}
		names = append(names, rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// files is tree without the directories that the driver keeps everything in.
func (l *lab) files(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(l.tree(t), func(n string) bool {
		return slices.Contains([]string{
			volume.MetaDir, ".nfs-csi/trash", ".nfs-csi/volumes", ".nfs-csi/names", ".nfs-csi/snapshots", ".nfs-csi/groups", ".nfs-csi/retained",
		}, n)
	})
}

func (l *lab) mustHave(t *testing.T, want ...string) {
	t.Helper()
	got := l.files(t)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("on the server are %q, want %q", got, want)
	}
}

func live(name string) []string {
	return []string{name, ".nfs-csi/volumes/" + name, ".nfs-csi/volumes/" + name + "/.record.json"}
}

func TestCreate(t *testing.T) {
	l := newLab(t)
	req := l.request("pvc-1")
	req.Params.Metadata = map[string]string{volume.KeyPVCName: "claim"}
	req.MountOptions = []string{"hard"}
	v, err := l.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if v.ID.String() != "nfs.test#export#pvc-1##delete" || v.Capacity != 1<<30 {
		t.Errorf("made %s of %d bytes", v.ID, v.Capacity)
	}
	info, err := os.Stat(filepath.Join(l.dir, "pvc-1"))
	if err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("directory %v, %v, want mode 0777", info, err)
	}
	b, err := os.ReadFile(filepath.Join(l.dir, ".nfs-csi/volumes/pvc-1/.record.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rec map[string]any
	if err := json.Unmarshal(b, &rec); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"version": "1", "name": "pvc-1", "id": v.ID.String(), "subDir": "pvc-1", "capacity": "1.073741824e+09",
		"onDelete": "delete", "mountOptions": "[hard]", "parameters": "map[server:nfs.test share:/export]",
		"metadata": "map[csi.storage.k8s.io/pvc/name:claim]",
	} {
		if got := fmt.Sprint(rec[key]); got != want {
			t.Errorf("the record's %s is %s, want %s", key, got, want)
		}
	}
	again, err := l.Create(t.Context(), req)
	if err != nil || again != v {
		t.Errorf("again: %+v, %v, want the same %+v", again, err, v)
	}
	l.mustHave(t, live("pvc-1")...)
}

func TestCreateDiffers(t *testing.T) {
	l := newLab(t)
	l.create(t, "pvc-1")
	for _, size := range []SizeRange{{Required: 2 << 30}, {Limit: 1}} {
		req := l.request("pvc-1")
		req.Size = size
		if _, err := l.Create(t.Context(), req); !errors.Is(err, volume.ErrIncompatible) {
			t.Errorf("%s: %v, want ErrIncompatible", size, err)
		}
	}
	for _, size := range []SizeRange{{}, {Required: 1}, {Required: 1 << 30, Limit: 1 << 30}, {Limit: 1 << 31}} {
		req := l.request("pvc-1")
		req.Size = size
		if v, err := l.Create(t.Context(), req); err != nil || v.Capacity != 1<<30 {
			t.Errorf("%s: %+v, %v, want the volume", size, v, err)
		}
	}
	for _, size := range []SizeRange{{Required: 2, Limit: 1}, {Required: -1}, {Limit: -1}} {
		req := l.request("pvc-2")
		req.Size = size
		if _, err := l.Create(t.Context(), req); !errors.Is(err, volume.ErrInvalid) && !errors.Is(err, volume.ErrOutOfRange) {
			t.Errorf("%s: %v, want that it is refused", size, err)
		}
	}
	l.mustHave(t, live("pvc-1")...)
}

func TestUnsafeNamesStayInside(t *testing.T) {
	l := newLab(t)
	for _, name := range []string{"../up", "/etc", ".", "..", "a/b", ".nfs-csi", "x#y", "a\nb"} {
		id := l.create(t, name)
		if strings.ContainsAny(id.SubDir, "/.#\n") {
			t.Errorf("%q became the directory %q", name, id.SubDir)
		}
		if again := l.create(t, name); again != id {
			t.Errorf("%q is %s and then %s", name, id, again)
		}
		back, err := volume.ParseID(id.String())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Delete(t.Context(), back, nil); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	l.mustHave(t)
}

func TestAdopt(t *testing.T) {
	l := newLab(t)
	l.put(t, "pvc-1/kept")
	if err := os.Chmod(filepath.Join(l.dir, "pvc-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	l.create(t, "pvc-1")
	l.mustHave(t, append(live("pvc-1"), "pvc-1/kept")...)
	if info, err := os.Stat(filepath.Join(l.dir, "pvc-1")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its mode became %v, %v", info.Mode(), err)
	}
}

func TestCreateOverWhatIsNoDirectory(t *testing.T) {
	l := newLab(t)
	l.put(t, "other/data")
	l.put(t, "file")
	if err := os.Symlink("other", filepath.Join(l.dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "link"} {
		if _, err := l.Create(t.Context(), l.request(name)); !errors.Is(err, volume.ErrOwned) {
			t.Errorf("%s: %v, want ErrOwned", name, err)
		}
	}
	l.mustHave(t, "file", "link", "other", "other/data")
}

func TestCreateFails(t *testing.T) {
	l := newLab(t)
	req := l.request("pvc-1")
	req.Params.Export.Share = "/none"
	if _, err := l.Create(t.Context(), req); !errors.Is(err, volume.ErrShareNotFound) || !strings.Contains(err.Error(), "nfs.test:/none") {
		t.Errorf("got %v, want ErrShareNotFound naming it", err)
	}
	req.Params.Export.Server = "none.test"
	if _, err := l.Create(t.Context(), req); !errors.Is(err, volume.ErrUnreachable) {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
	l.create(t, "pvc-1")
}

// Many callers and several controllers, one volume.
func TestConcurrentCreates(t *testing.T) {
	l := newLab(t)
	stores := []*Store{l.Store, l.start(t), l.start(t)}
	for round := range 10 {
		var (
			wg  sync.WaitGroup
			mu  sync.Mutex
			ids = map[volume.ID]bool{}
		)
		for i := range 12 {
			wg.Go(func() {
				v, err := stores[i%len(stores)].Create(t.Context(), l.request(fmt.Sprintf("pvc-%d", round)))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				ids[v.ID] = true
			})
		}
		wg.Wait()
		if len(ids) != 1 {
			t.Fatalf("one name became %v", ids)
		}
	}
}

// killAt makes the store's process die at the n-th step from now: what runs
// stops there without any cleanup, and the caller gets no answer.
func (l *lab) killAt(ctx context.Context, s *Store, n int) (context.Context, func() bool) {
	ctx, cancel := context.WithCancel(ctx)
	killed := false
	s.step = func(context.Context, string) error {
		if n--; n == 0 {
			killed = true
			cancel()
			runtime.Goexit()
		}
		return nil
	}
	return ctx, func() bool { defer cancel(); s.exports.Wait(); return killed }
}

func TestKilledCreateIsCompleted(t *testing.T) {
	for n := 1; ; n++ {
		l := newLab(t)
		ctx, killed := l.killAt(t.Context(), l.Store, n)
		_, err := l.Create(ctx, l.request("pvc-1"))
		if !killed() {
			if err != nil || n < 3 {
				t.Fatalf("no step %d, and %v", n, err)
			}
			return
		}
		if err == nil {
			t.Fatalf("killed at step %d and answered", n)
		}
		l.Store = l.start(t)
		l.create(t, "pvc-1")
		l.mustHave(t, live("pvc-1")...)
		if err := l.Delete(t.Context(), l.id("pvc-1"), nil); err != nil {
			t.Error(err)
		}
		l.mustHave(t)
	}
}

func TestKilledDeleteIsCompleted(t *testing.T) {
	for n := 1; ; n++ {
		l := newLab(t)
		id := l.create(t, "pvc-1")
		l.put(t, "pvc-1/a/b")
		ctx, killed := l.killAt(t.Context(), l.Store, n)
		err := l.Delete(ctx, id, nil)
		if !killed() {
			if err != nil || n < 3 {
				t.Fatalf("no step %d, and %v", n, err)
			}
			return
		}
		if err == nil {
			t.Fatalf("killed at step %d and answered", n)
		}
		l.Store = l.start(t)
		if err := l.Delete(t.Context(), id, nil); err != nil {
			t.Errorf("after being killed at step %d: %v", n, err)
		}
		l.mustHave(t)
	}
}

func TestCallerIsLetGoAndTheLockKept(t *testing.T) {
	l := newLab(t)
	blocked, release := make(chan struct{}), make(chan struct{})
	step := l.step
	l.step = func(ctx context.Context, name string) error {
		if name == "create directory" {
			close(blocked)
			<-release
		}
		return step(ctx, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-blocked; cancel() }()
	if _, err := l.Create(ctx, l.request("pvc-1")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the caller was let go", err)
	}
	short, cancelShort := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancelShort()
	if err := l.Delete(short, l.id("pvc-1"), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the volume is locked", err)
	}
	if err := l.Exists(t.Context(), l.id("pvc-2"), nil); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("another volume: %v", err)
	}
	close(release)
	l.exports.Wait()
	l.step = step
	l.create(t, "pvc-1")
	l.mustHave(t, live("pvc-1")...)
}

// An administrator may put the driver's directory away, or an older one in its
// place, while the driver has it open.
func TestCatalogIsReplaced(t *testing.T) {
	l := newLab(t)
	l.create(t, "pvc-1")
	meta := filepath.Join(l.dir, volume.MetaDir)
	if err := os.Rename(meta, meta+".old"); err != nil {
		t.Fatal(err)
	}
	l.create(t, "pvc-2")
	if left, err := os.ReadDir(filepath.Join(meta+".old", "volumes")); err != nil || len(left) != 1 {
		t.Errorf("in the old one are %v, %v", left, err)
	}
	if err := os.RemoveAll(meta + ".old"); err != nil {
		t.Fatal(err)
	}
	l.mustHave(t, append(live("pvc-2"), "pvc-1")...)
}
