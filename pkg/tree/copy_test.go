package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// describe lists a tree with everything that a copy keeps.
func describe(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	inodes := map[uint64]string{}
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%s %o %d:%d %d.%d", rel, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			first, ok := inodes[st.Ino]
			if !ok {
				inodes[st.Ino], first = rel, rel
			}
			line += fmt.Sprintf(" %d bytes %x same as %s", len(b), bytes.TrimLeft(b[:min(len(b), 64)], "\x00"), first)
			buf := make([]byte, 64)
			if n, err := unix.Getxattr(p, "user.note", buf); err == nil {
				line += " note " + string(buf[:n])
			}
		case unix.S_IFLNK:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + to
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func mustCopy(t *testing.T, from, to *os.Root, opts CopyOptions) *Progress {
	t.Helper()
	opts.Progress = &Progress{}
	if err := Copy(t.Context(), from, to, opts); err != nil {
		t.Fatal(err)
	}
	return opts.Progress
}

func TestCopyKeepsEverything(t *testing.T) {
	for _, workers := range []int{1, 3, 16} {
		from, src := root(t, testDir{
			"a": nil, "empty": testDir{}, "dangling": "nowhere", "up": "../..", "absolute": "/etc/passwd",
			"d": testDir{"e": testDir{"f": testDir{"deep": nil}}, "g": nil, "self": "."},
		})
		to, dst := root(t, testDir{})
		for _, err := range []error{
			os.Link(filepath.Join(src, "a"), filepath.Join(src, "d/a")),
			os.Link(filepath.Join(src, "a"), filepath.Join(src, "d/e/a")),
			os.WriteFile(filepath.Join(src, "big"), bytes.Repeat([]byte("0123456789"), 1<<17), 0o640),
			os.WriteFile(filepath.Join(src, "none"), nil, 0o600),
			unix.Mkfifo(filepath.Join(src, "fifo"), 0o620),
			unix.Mknod(filepath.Join(src, "socket"), unix.S_IFSOCK|0o755, 0),
			unix.Setxattr(filepath.Join(src, "d/g"), "user.note", []byte("well"), 0),
			os.Chmod(filepath.Join(src, "big"), 0o4751|os.ModeSetuid|os.ModeSetgid),
			os.Chmod(filepath.Join(src, "d/e"), 0o555|os.ModeSticky),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if os.Getuid() == 0 {
			for i, name := range []string{"a", "big", "d", "d/e", "dangling", "fifo", "."} {
				if err := os.Lchown(filepath.Join(src, name), 1000+i, 2000+i); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(filepath.Join(src, "big"), 0o751|os.ModeSetuid|os.ModeSetgid); err != nil {
				t.Fatal(err)
			}
		}
		old := []unix.Timespec{{Sec: 1e9, Nsec: 123456789}, {Sec: 1e9 + 5, Nsec: 987654321}}
		for _, name := range []string{"dangling", "none", "d/e/f", "d/e", "d", "fifo", "big", "."} {
			if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(src, name), old, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				t.Fatal(err)
			}
		}
		p := mustCopy(t, from, to, CopyOptions{Workers: workers, Frozen: true})
		if got, want := describe(t, dst), describe(t, src); !slices.Equal(got, want) {
			t.Errorf("%d workers: got\n%s\nwant\n%s", workers, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		size, entries, err := Count(t.Context(), from)
		if err != nil || entries != p.Entries() || p.Gone() != 0 {
			t.Errorf("copied %d entries of %d, %v", p.Entries(), entries, err)
		}
		if links := int64(2); size != p.Bytes()+links {
			t.Errorf("copied %d bytes, counted %d", p.Bytes(), size)
		}
	}
}

func TestCopyManyFiles(t *testing.T) {
	many := testDir{}
	for i := range 40 {
		d := testDir{}
		for j := range 60 {
			d[fmt.Sprintf("f%d", j)] = nil
		}
		many[fmt.Sprintf("d%d", i)] = d
		many[fmt.Sprintf("f%d", i)] = nil
	}
	from, src := root(t, many)
	to, dst := root(t, testDir{})
	if p := mustCopy(t, from, to, CopyOptions{Workers: 8}); p.Entries() != 40*62 {
		t.Errorf("copied %d entries", p.Entries())
	}
	if got, want := describe(t, dst), describe(t, src); !slices.Equal(got, want) {
		t.Errorf("got %d lines that differ from the %d of the source", len(got), len(want))
	}
}

func TestCopyKeepsHoles(t *testing.T) {
	from, src := root(t, testDir{})
	to, dst := root(t, testDir{})
	f, err := os.Create(filepath.Join(src, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{1 << 20, 64 << 20} {
		if _, err := f.WriteAt(bytes.Repeat([]byte("x"), 5000), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Truncate(100<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	p := mustCopy(t, from, to, CopyOptions{Workers: 2})
	var a, b unix.Stat_t
	if err := errors.Join(unix.Stat(filepath.Join(src, "sparse"), &a), unix.Stat(filepath.Join(dst, "sparse"), &b)); err != nil {
		t.Fatal(err)
	}
	if b.Size != a.Size || b.Blocks*512 > 1<<20 || p.Bytes() != a.Size {
		t.Errorf("%d bytes in %d blocks, want %d in %d; counted %d", b.Size, b.Blocks, a.Size, a.Blocks, p.Bytes())
	}
	x, errX := os.ReadFile(filepath.Join(src, "sparse"))
	y, errY := os.ReadFile(filepath.Join(dst, "sparse"))
	if errX != nil || errY != nil || !bytes.Equal(x, y) {
		t.Errorf("content differs, %v, %v", errX, errY)
	}
}

// What the walk meets in the place of what was listed is decided by looking.
func TestCopyOfWhatChanges(t *testing.T) {
	from, src := root(t, testDir{"link": "/etc/passwd", "dir": testDir{"x": nil}, "file": nil})
	if err := unix.Mkfifo(filepath.Join(src, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "dir", "file", "fifo", "gone"} {
		for _, listed := range []os.FileMode{0, os.ModeDir, os.ModeSymlink, os.ModeNamedPipe} {
			to, dst := root(t, testDir{})
			c, p := bare(t, from, to, CopyOptions{Workers: 1})
			if err := c.entry(t.Context(), p, name, listed); err != nil {
				t.Errorf("%s listed as %s: %v", name, listed, err)
			}
			a, errA := os.Lstat(filepath.Join(src, name))
			b, errB := os.Lstat(filepath.Join(dst, name))
			if (errA == nil) != (errB == nil) || errA == nil && a.Mode() != b.Mode() {
				t.Errorf("%s listed as %s became %v, %v", name, listed, b, errB)
			}
			if gone := c.progress.Gone(); (gone == 1) != (name == "gone") {
				t.Errorf("%s: %d gone", name, gone)
			}
		}
	}
}

// bare is a copier in the middle of the tops of two trees.
func bare(t *testing.T, from, to *os.Root, opts CopyOptions) (*copier, pair) {
	t.Helper()
	src, errS := from.Open(".")
	dst, errD := to.Open(".")
	if err := errors.Join(errS, errD); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close(); dst.Close() })
	c := &copier{opts: opts, progress: &Progress{}, to: to, src: src, cancel: func(error) {}, files: make(chan struct{}, 1), dirs: make(chan struct{}, 1)}
	c.buffers.New = func() any { return new([bufferSize]byte) }
	return c, pair{src: src, dst: dst, path: "."}
}

func TestFrozenSourceMustNotChange(t *testing.T) {
	from, src := root(t, testDir{"file": nil})
	to, _ := root(t, testDir{})
	c, p := bare(t, from, to, CopyOptions{Workers: 1, Frozen: true})
	if err := c.entry(t.Context(), p, "gone", 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an entry that is gone: %v", err)
	}
	fd, err := unix.Open(filepath.Join(src, "file"), unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	st := unix.Stat_t{Mode: unix.S_IFREG | 0o600, Size: 1 << 20}
	c.noClone.Store(true)
	if err := c.newFile(t.Context(), p, "short", fd, &st); err == nil {
		t.Error("a file that shrank was taken")
	}
	c.opts.Frozen = false
	if err := c.newFile(t.Context(), p, "short", fd, &st); err != nil {
		t.Errorf("a file that shrank in use: %v", err)
	}
}

func TestCopyLeavesDevicesOut(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes devices")
	}
	from, src := root(t, testDir{"a": nil})
	to, dst := root(t, testDir{})
	if err := unix.Mknod(filepath.Join(src, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Skip(err)
	}
	if p := mustCopy(t, from, to, CopyOptions{Workers: 1, Frozen: true}); p.Devices() != 1 || p.Entries() != 1 {
		t.Errorf("%d devices, %d entries", p.Devices(), p.Entries())
	}
	if _, err := os.Lstat(filepath.Join(dst, "null")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the device is there: %v", err)
	}
}

func TestCopyStops(t *testing.T) {
	from, _ := root(t, testDir{"a": nil, "b": testDir{"c": nil}})
	to, _ := root(t, testDir{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Copy(ctx, from, to, CopyOptions{Workers: 2}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
}

// tiny is a file system of one MiB.
func tiny(t *testing.T) *os.Root {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("cannot mount a small tmpfs: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestCopyToAFullDisk(t *testing.T) {
	for name, sizes := range map[string][]int{"one file": {2 << 20}, "small files": slices.Repeat([]int{4096}, 400)} {
		from, src := root(t, testDir{})
		for i, n := range sizes {
			if err := os.WriteFile(filepath.Join(src, fmt.Sprint(i)), bytes.Repeat([]byte("x"), n), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := Copy(t.Context(), from, tiny(t), CopyOptions{Workers: 4}); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v, want ENOSPC", name, err)
		}
	}
}

func TestCopyOfALiveTree(t *testing.T) {
	from, src := root(t, testDir{"keep": testDir{"a": nil, "b": nil}, "churn": testDir{}})
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		dir := filepath.Join(src, "churn")
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := filepath.Join(dir, fmt.Sprint(i%50))
			os.RemoveAll(name)
			switch i % 3 {
			case 0:
				_ = os.WriteFile(name, bytes.Repeat([]byte("y"), i%9000), 0o600)
			case 1:
				_ = os.MkdirAll(filepath.Join(name, "sub/deep"), 0o700)
			case 2:
				_ = os.Symlink("/etc", name)
			}
		}
	}()
	for range 30 {
		to, dst := root(t, testDir{})
		if err := Copy(t.Context(), from, to, CopyOptions{Workers: 4}); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dst, "keep/b")); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-done
}

func TestProgressInWords(t *testing.T) {
	p := &Progress{}
	p.bytes.Store(1288490189)
	p.entries.Store(8123)
	if got := p.String(); got != "1.2 GiB, 8123 files" {
		t.Error(got)
	}
	p.SetTotal(3113851290, 10000)
	if got := p.String(); got != "41%, 1.2 of 2.9 GiB, 8123 files" {
		t.Error(got)
	}
	if b, e := p.Left(); b != 3113851290-1288490189 || e != 1877 {
		t.Error(b, e)
	}
}
