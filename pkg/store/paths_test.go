package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// docs/format.md has every path that the driver makes below .nfs-csi, and none that
// it does not make.
func TestPathsAreDocumented(t *testing.T) {
	l := newLab(t)
	if err := l.Delete(t.Context(), l.id("none"), nil); err != nil { // makes .nfs-csi
		t.Fatal(err)
	}
	made := watch(t, filepath.Join(l.dir, volume.MetaDir, "tmp"))
	seen := map[string]bool{}
	var mu sync.Mutex
	look := func(ctx context.Context, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range paths(t, filepath.Join(l.dir, volume.MetaDir)) {
			seen[name] = true
		}
		return ctx.Err()
	}
	l.step = look
	l.useAll(t)
	for _, name := range made() {
		seen[path.Join("tmp", name)] = true
	}
	rows := documentedPaths(t)
	for name := range seen {
		if !rows.allow(name) {
			t.Errorf("docs/format.md does not have %s", name)
		}
	}
	for row, pattern := range rows {
		if !pattern.metBy(seen) {
			t.Errorf("docs/format.md has %s, which was never made", row)
		}
	}
}

// useAll does one of everything that leaves something below .nfs-csi.
func (l *lab) useAll(t *testing.T) {
	t.Helper()
	l.put(t, "adopted/file")
	l.cfg.ClusterID = "one"
	l.createAs(t, l.claimed("pvc-5", "team", "claim"))
	again := l.createAs(t, l.claimed("pvc-6", "team", "claim"))
	plain, nested := l.create(t, "pvc-1"), l.createAs(t, l.classed("pvc-2", "team/nested", volume.OnDeleteArchive))
	adopted := l.createAs(t, l.classed("pvc-3", "adopted", volume.OnDeleteDelete))
	l.put(t, "pvc-1/file")
	l.link(t, "pvc-1/file", "pvc-1/link")
	sharing := l.createAs(t, l.sharing("pvc-7", "shared"))
	snap := l.snapshot(t, "snap", plain)
	l.group(t, "group", plain, nested)
	clone, err := l.Create(t.Context(), l.from("pvc-4", Source{Snapshot: &snap.ID}))
	if err == nil {
		_, err = l.Expand(t.Context(), plain, SizeRange{Required: 5 << 30}, nil)
	}
	if err == nil {
		err = l.Modify(t.Context(), adopted, volume.Mutable{OnDelete: volume.OnDeleteRetain}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []volume.ID{plain, nested, adopted, clone.ID, again, sharing} {
		l.delete(t, id)
	}
}

// paths lists what is in a directory, while others change it.
func paths(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if rel, relErr := filepath.Rel(dir, p); relErr == nil && rel != "." {
			names = append(names, rel)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return names
}

type documentedPath struct {
	whole    *regexp.Regexp
	leads    []*regexp.Regexp // the directories above it
	anything bool             // also what is in it
}

type pathTable map[string]documentedPath

func documentedPaths(t *testing.T) pathTable {
	t.Helper()
	page, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Paths\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := pathTable{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		rows[m[1]] = parsePath(m[1])
	}
	return rows
}

func parsePath(row string) documentedPath {
	pattern := func(s string) *regexp.Regexp {
		s = regexp.QuoteMeta(s)
		s = strings.ReplaceAll(s, "/<SUBDIR>", "/.+") // of any depth
		return regexp.MustCompile("^" + regexp.MustCompile("<[A-Z]+>").ReplaceAllString(s, "[^/]+") + "$")
	}
	trimmed := strings.TrimSuffix(row, "/")
	p := documentedPath{whole: pattern(trimmed), anything: trimmed != row}
	for dir := path.Dir(trimmed); dir != "."; dir = path.Dir(dir) {
		p.leads = append(p.leads, pattern(dir))
	}
	return p
}

func (t pathTable) allow(name string) bool {
	for _, p := range t {
		if p.allows(name) {
			return true
		}
	}
	return false
}

func (p documentedPath) allows(name string) bool {
	if p.whole.MatchString(name) {
		return true
	}
	for _, lead := range p.leads {
		if lead.MatchString(name) {
			return true
		}
	}
	for dir := path.Dir(name); p.anything && dir != "."; dir = path.Dir(dir) {
		if p.whole.MatchString(dir) {
			return true
		}
	}
	return false
}

func (p documentedPath) metBy(names map[string]bool) bool {
	for name := range names {
		if p.whole.MatchString(name) {
			return true
		}
	}
	return false
}

// watch notes the names of all that comes to be in a directory, however short it
// stays there.
func watch(t *testing.T, dir string) (names func() []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	return func() []string {
		var list []string
		buf := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buf)
			if err != nil {
				if !errors.Is(err, unix.EAGAIN) {
					t.Error(err)
				}
				return list
			}
			for at := 0; at < n; {
				event := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
				at += unix.SizeofInotifyEvent
				name, _, _ := bytes.Cut(buf[at:at+int(event.Len)], []byte{0})
				list = append(list, string(name))
				at += int(event.Len)
			}
		}
	}
}
