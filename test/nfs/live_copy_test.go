package nfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
)

// liveTree is a tree that a tenant changes on the server while it is copied over NFS.
type liveTree struct {
	source, target string // on the server
	from, to       *os.Root
	scratch        func() (*os.Root, error)
}

// onLiveTrees runs a test on both file systems, with both versions of the protocol.
func onLiveTrees(t *testing.T, test func(t *testing.T, l *liveTree)) {
	k := kernel(t)
	for name, export := range exports(t) {
		for _, version := range []string{"vers=4.2", "vers=3"} {
			t.Run(name+" "+version, func(t *testing.T) {
				sub, at := serverDir(t, export), target(t, k)
				if err := k.Mount(t.Context(), nfsmount.Mount{Export: export, SubDir: sub, Target: at, Options: options(t, version)}); err != nil {
					t.Fatal(err)
				}
				onServer := filepath.Join(export.Share, sub)
				open := func(name string) *os.Root {
					mkdir(t, filepath.Join(onServer, name))
					root, err := os.OpenRoot(filepath.Join(at, name))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { root.Close() })
					return root
				}
				l := &liveTree{
					source: filepath.Join(onServer, "source"), target: filepath.Join(onServer, "target"),
					from: open("source"), to: open("target"), scratch: func() (*os.Root, error) { return open("scratch"), nil },
				}
				test(t, l)
			})
		}
	}
}

// copy copies the tree. When it stops for the n-th time between entries and parts of
// files, the tenant does what is to be done.
func (l *liveTree) copy(t *testing.T, workers int, n int64, tenant func(*tree.Progress) error) *tree.Progress {
	t.Helper()
	var stops atomic.Int64
	p := &tree.Progress{}
	done := errors.New("the copy was over before")
	err := tree.Copy(t.Context(), l.from, l.to, tree.CopyOptions{
		Workers: workers, Progress: p, Scratch: l.scratch,
		Pause: func(ctx context.Context) error {
			if stops.Add(1) == n {
				done = tenant(p)
			}
			return ctx.Err()
		},
	})
	if err := errors.Join(err, done); err != nil {
		t.Fatal(err)
	}
	size, entries, err := tree.Count(t.Context(), l.to)
	if err != nil || entries != p.Entries() || size != p.Bytes() {
		t.Errorf("the copy says %d entries with %d bytes, there are %d with %d, %v", p.Entries(), p.Bytes(), entries, size, err)
	}
	return p
}

func letters(c string, n int) []byte { return bytes.Repeat([]byte(c), n) }

// mustHoldLetters tells that every file in the target is one that was in the source.
func mustHoldLetters(t *testing.T, dir string, want func(name, content string) bool) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
		if !e.Type().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || !want(e.Name(), string(b)) {
			t.Errorf("%s holds %d bytes, %d of them A and %d B, %v", e.Name(), len(b), bytes.Count(b, []byte("A")), bytes.Count(b, []byte("B")), err)
		}
	}
	return names
}

// oneOf also takes the empty file that there is before it is written to.
func oneOf(a, b []byte) func(string, string) bool {
	return func(_, content string) bool { return content == string(a) || content == string(b) || content == "" }
}

// A server may list a file again that was removed and made again meanwhile: XFS does
// with as many as these.
func TestCopyOfRecreatedFiles(t *testing.T) {
	onLiveTrees(t, func(t *testing.T, l *liveTree) {
		files := 4001
		if !strings.Contains(t.Name(), "xfs") {
			files = 501
		}
		before, after := letters("A", 4000), letters("B", 2000)
		// Every eighth each is a fifo, a directory or a symlink at first.
		all := func(content []byte, others bool) error {
			for i := range files {
				name := filepath.Join(l.source, fmt.Sprintf("file-%05d", i))
				err := os.RemoveAll(name)
				switch {
				case err != nil:
				case others && i%8 == 1:
					err = unix.Mkfifo(name, 0o644)
				case others && i%8 == 2:
					err = os.Mkdir(name, 0o755)
				case others && i%8 == 3:
					err = os.Symlink("/etc/passwd", name)
				default:
					err = os.WriteFile(name, content, 0o644)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		if err := all(before, true); err != nil {
			t.Fatal(err)
		}
		l.copy(t, 16, 100, func(*tree.Progress) error { return all(after, false) })
		if n := len(mustHoldLetters(t, l.target, oneOf(before, after))); n < files*9/10 {
			t.Errorf("the copy has %d of %d files", n, files)
		}
	})
}

// With NFSv3 an open file that was replaced is gone: ESTALE. It is replaced before it
// is opened, and after the first part of it was read.
func TestCopyOfAFileReplacedByRename(t *testing.T) {
	onLiveTrees(t, func(t *testing.T, l *liveTree) {
		before, after := letters("A", 8<<20), letters("B", 1<<20)
		name, next := filepath.Join(l.source, "file"), filepath.Join(filepath.Dir(l.source), "next")
		stops := int64(2)
		if strings.Contains(t.Name(), "xfs_vers=4.2") {
			stops = 1 // it is cloned in one piece
		}
		if err := errors.Join(os.WriteFile(name, before, 0o644), os.WriteFile(next, after, 0o644)); err != nil {
			t.Fatal(err)
		}
		p := l.copy(t, 1, stops, func(*tree.Progress) error { return os.Rename(next, name) })
		if n := len(mustHoldLetters(t, l.target, oneOf(before, after))); n != 1 || p.Gone() != 0 {
			t.Errorf("the copy has %d files, %d are gone", n, p.Gone())
		}
	})
}

func TestCopyOfADirectoryReplacedByRename(t *testing.T) {
	onLiveTrees(t, func(t *testing.T, l *liveTree) {
		fill := func(dir, letter string, files int) (err error) {
			for i := 0; i < files && err == nil; i++ {
				err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d", letter, i)), letters(letter, 1000), 0o644)
			}
			return err
		}
		dir := filepath.Join(l.source, "dir")
		next, old := filepath.Join(filepath.Dir(l.source), "next"), filepath.Join(filepath.Dir(l.source), "old")
		mkdir(t, dir)
		mkdir(t, next)
		if err := errors.Join(fill(dir, "A", 300), fill(next, "B", 20)); err != nil {
			t.Fatal(err)
		}
		l.copy(t, 1, 50, func(*tree.Progress) error {
			return errors.Join(os.Rename(dir, old), os.Rename(next, dir), os.RemoveAll(old))
		})
		names := mustHoldLetters(t, filepath.Join(l.target, "dir"), func(name, content string) bool {
			return content == string(letters(name[:1], 1000))
		})
		if whole := len(names) == 20 && strings.HasPrefix(names[0], "B"); !whole {
			t.Errorf("the copy has %d files: %q", len(names), names)
		}
	})
}

// A directory that is removed for good leaves none of its copy.
func TestCopyOfADirectoryThatIsRemoved(t *testing.T) {
	onLiveTrees(t, func(t *testing.T, l *liveTree) {
		dir := filepath.Join(l.source, "dir")
		mkdir(t, dir)
		for i := range 100 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), letters("A", 1000), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l.copy(t, 1, 20, func(*tree.Progress) error { return os.RemoveAll(dir) })
		if list, err := os.ReadDir(l.target); err != nil || len(list) != 0 {
			t.Errorf("the copy has %v, %v", list, err)
		}
	})
}

// The inode of a removed file with two names becomes that of another one, which is not
// the same file then.
func TestCopyOfALinkWhoseInodeIsUsedAgain(t *testing.T) {
	onLiveTrees(t, func(t *testing.T, l *liveTree) {
		at := func(name string) string { return filepath.Join(l.source, name) }
		if err := errors.Join(os.WriteFile(at("a"), nil, 0o644), os.Link(at("a"), at("b"))); err != nil {
			t.Fatal(err)
		}
		inode := func(name string) uint64 {
			var st unix.Stat_t
			if err := unix.Lstat(name, &st); err != nil {
				t.Error(err)
			}
			return st.Ino
		}
		was, again, last := inode(at("a")), false, "a"
		// An empty file has no parts: the second stop is that before the second name.
		l.copy(t, 1, 2, func(p *tree.Progress) error {
			eventually(t, time.Minute, "the first name is copied", func() error {
				if p.Entries() != 1 {
					return errors.New("it is not")
				}
				return nil
			})
			if _, err := os.Stat(filepath.Join(l.target, last)); err == nil {
				last = "b"
			}
			err := errors.Join(os.Remove(at("a")), os.Remove(at("b")))
			for i := 0; err == nil && i < 1000 && !again; i++ {
				if i > 0 {
					err = os.Rename(at(last), filepath.Join(filepath.Dir(l.source), fmt.Sprint("other-", i)))
				}
				err = errors.Join(err, os.WriteFile(at(last), nil, 0o600))
				again = inode(at(last)) == was
			}
			return errors.Join(err, os.Link(at(last), at("another")))
		})
		if info, err := os.Stat(filepath.Join(l.target, last)); err != nil || info.Mode() != 0o600 {
			t.Errorf("inode used again %v: %s is %v, %v", again, last, info, err)
		}
		t.Logf("inode used again: %v", again)
	})
}

// Each kind of entry becomes each other kind after it was listed, among them a fifo in
// the place of a file.
func TestCopyOfEntriesThatChangeType(t *testing.T) {
	onLiveTrees(t, func(t *testing.T, l *liveTree) {
		kinds := []func(name string) error{
			func(name string) error { return os.WriteFile(name, []byte("content"), 0o644) },
			func(name string) error { return os.MkdirAll(filepath.Join(name, "below"), 0o755) },
			func(name string) error { return os.Symlink("/etc/passwd", name) },
			func(name string) error { return unix.Mkfifo(name, 0o644) },
		}
		name := func(i, j int) string { return filepath.Join(l.source, fmt.Sprintf("%d becomes %d", i, j)) }
		each := func(do func(i, j int) error) (err error) {
			for i := range kinds {
				for j := range kinds {
					err = errors.Join(err, do(i, j))
				}
			}
			return err
		}
		if err := each(func(i, j int) error { return kinds[i](name(i, j)) }); err != nil {
			t.Fatal(err)
		}
		modes := map[string][]os.FileMode{} // before and after
		note := func(i, j int) error {
			info, err := os.Lstat(name(i, j))
			if err == nil {
				modes[info.Name()] = append(modes[info.Name()], info.Mode())
			}
			return err
		}
		if err := each(note); err != nil {
			t.Fatal(err)
		}
		l.copy(t, 1, 1, func(*tree.Progress) error {
			return each(func(i, j int) error { return errors.Join(os.RemoveAll(name(i, j)), kinds[j](name(i, j)), note(i, j)) })
		})
		for name, either := range modes {
			if info, err := os.Lstat(filepath.Join(l.target, name)); err != nil || !slices.Contains(either, info.Mode()) {
				t.Errorf("%s: the copy is %v, %v", name, info, err)
			}
		}
	})
}

// Of a deep tree only some directories are open; what is in the others is read on from
// where it was left, by the offset that the server gave.
func TestCopyOfADeepTree(t *testing.T) {
	onLiveTrees(t, func(t *testing.T, l *liveTree) {
		dir := l.source
		var err error
		for i := range 60 {
			for _, name := range []string{"a", "n", "z"} {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint(name, i)), []byte(name), 0o640))
			}
			for j := range 20 * (i % 2) {
				err = errors.Join(err, os.Symlink("x", filepath.Join(dir, fmt.Sprintf("link-%d", j))))
			}
			dir = filepath.Join(dir, "down")
			err = errors.Join(err, os.Mkdir(dir, 0o750))
		}
		if err != nil {
			t.Fatal(err)
		}
		p := l.copy(t, 1, 1, func(*tree.Progress) error { return nil })
		if p.Gone() != 0 || p.Unlinked() != 0 {
			t.Errorf("%d are gone", p.Gone())
		}
		mustBeCopy(t, l.source, l.target)
	})
}
