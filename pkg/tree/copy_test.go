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
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// describe lists a tree with everything that a copy preserves.
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
	opts.Progress, opts.Scratch = &Progress{}, scratchFor(to)
	if err := Copy(t.Context(), from, to, opts); err != nil {
		t.Fatal(err)
	}
	return opts.Progress
}

// scratchFor makes a scratch directory beside the target, as callers of Copy do.
func scratchFor(to *os.Root) func() (*os.Root, error) {
	return func() (*os.Root, error) {
		dir, err := os.MkdirTemp(filepath.Dir(to.Name()), "scratch-")
		if err != nil {
			return nil, err
		}
		return os.OpenRoot(dir)
	}
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
	from, src := quick(t, many)
	to, dst := quick(t, testDir{})
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

// put replaces what is at a path by an entry of a kind.
func put(kind, at string) error {
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	switch kind {
	case "file":
		return os.WriteFile(at, []byte("content"), 0o640)
	case "directory":
		return errors.Join(os.Mkdir(at, 0o750), os.WriteFile(filepath.Join(at, "x"), nil, 0o600))
	case "symlink":
		return os.Symlink("/etc/passwd", at)
	case "fifo":
		return unix.Mkfifo(at, 0o620)
	case "socket":
		return unix.Mknod(at, unix.S_IFSOCK|0o600, 0)
	}
	return nil
}

// once calls do when the copy reaches the step for the first time.
func once(step, name string, do func() error) func(string, string) error {
	var done sync.Once
	return func(at, of string) (err error) {
		if at == step && of == name {
			done.Do(func() { err = do() })
		}
		return err
	}
}

// An entry whose type changes after it was listed is copied with its new type, even one
// that would block open(2).
func TestCopyOfWhatChanges(t *testing.T) {
	kinds := []string{"file", "directory", "symlink", "fifo", "socket", "gone"}
	for _, listed := range kinds[:5] {
		for _, then := range kinds {
			from, src := quick(t, testDir{})
			to, dst := quick(t, testDir{})
			name := filepath.Join(src, "name")
			if err := put(listed, name); err != nil {
				t.Fatal(err)
			}
			var replaced error
			p := mustCopy(t, from, to, CopyOptions{Workers: 1, at: once("listed", "name", func() error {
				replaced = put(then, name)
				return nil
			})})
			if replaced != nil {
				t.Fatal(replaced)
			}
			// The tree's own directory keeps the time it had when it was opened.
			if got, want := describe(t, dst)[1:], describe(t, src)[1:]; !slices.Equal(got, want) {
				t.Errorf("%s became %s: got\n%s\nwant\n%s", listed, then, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if gone := p.Gone(); (gone == 1) != (then == "gone") {
				t.Errorf("%s became %s: %d gone", listed, then, gone)
			}
			if _, entries, err := Count(t.Context(), to); err != nil || entries != p.Entries() {
				t.Errorf("%s became %s: counted %d entries, the copy has %d, %v", listed, then, p.Entries(), entries, err)
			}
		}
	}
}

func TestFrozenSourceMustNotChange(t *testing.T) {
	for _, frozen := range []bool{true, false} {
		for name, tt := range map[string]struct {
			step string
			do   func(file string) error
		}{
			"gone":   {"listed", os.Remove},
			"shrunk": {"opened", func(file string) error { return os.Truncate(file, 10) }},
		} {
			from, src := root(t, testDir{})
			to, dst := root(t, testDir{})
			file := filepath.Join(src, "file")
			if err := os.WriteFile(file, bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Copy(t.Context(), from, to, CopyOptions{Workers: 1, Frozen: frozen, at: once(tt.step, "file", func() error { return tt.do(file) })})
			if (err != nil) != frozen {
				t.Errorf("%s, frozen %v: %v", name, frozen, err)
			}
			if info, err := os.Stat(filepath.Join(dst, "file")); !frozen && name == "shrunk" && (err != nil || info.Size() != 10) {
				t.Errorf("%s: the copy is %v, %v", name, info, err)
			}
		}
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

func TestCopyToAFullDisk(t *testing.T) {
	for name, sizes := range map[string][]int{"one file": {2 << 20}, "small files": slices.Repeat([]int{4096}, 400)} {
		from, src := root(t, testDir{})
		for i, n := range sizes {
			if err := os.WriteFile(filepath.Join(src, fmt.Sprint(i)), bytes.Repeat([]byte("x"), n), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := Copy(t.Context(), from, memory(t, "1m"), CopyOptions{Workers: 4}); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v, want ENOSPC", name, err)
		}
	}
}

func TestCopyOfALiveTree(t *testing.T) {
	from, src := quick(t, testDir{"keep": testDir{"a": nil, "b": nil}, "churn": testDir{}})
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
		to, dst := quick(t, testDir{})
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
