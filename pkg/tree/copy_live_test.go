package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// mustBeCounted compares the progress of a copy with the content of the target.
func mustBeCounted(t *testing.T, p *Progress, to *os.Root) {
	t.Helper()
	size, entries, err := Count(t.Context(), to)
	if err != nil || entries != p.Entries() || size != p.Bytes() {
		t.Errorf("the copy says %d entries with %d bytes, there are %d with %d, %v", p.Entries(), p.Bytes(), entries, size, err)
	}
}

const remade = 2000 // entries that are replaced while they are listed

// remake calls do with each of them.
func remake(dir string, do func(i int, name string) error) error {
	for i := range remade {
		if err := do(i, filepath.Join(dir, fmt.Sprintf("name-%05d", i))); err != nil {
			return err
		}
	}
	return nil
}

// putAs creates an entry of the n-th kind; a file has the letter size times.
func putAs(n int, letter string, size int, at string) error {
	kinds := []string{"file", "directory", "symlink", "fifo", "socket"}
	if kind := kinds[n%len(kinds)]; kind != "file" {
		return put(kind, at)
	}
	return errors.Join(os.RemoveAll(at), os.WriteFile(at, bytes.Repeat([]byte(letter), size), 0o600))
}

// Every entry is replaced by another kind or a smaller file while the directory is
// listed, with different limits for remembered names.
func TestCopyOfNamesListedTwice(t *testing.T) {
	for _, most := range []int64{maxNames, remade, 50, 0} {
		from, to := memory(t, "64m"), memory(t, "64m")
		err := remake(from.Name(), func(i int, name string) error { return putAs(i, "A", 8000, name) })
		if err != nil {
			t.Fatal(err)
		}
		listed, again := map[string]int{}, errors.New("not done")
		ctx, cancel := context.WithCancelCause(t.Context())
		c := newCopier(CopyOptions{Workers: 4, at: func(step, name string) error {
			if step != "listed" || strings.Contains(name, "/") {
				return nil
			}
			if listed[name]++; len(listed) == 100 && again != nil {
				again = remake(from.Name(), func(i int, name string) error { return putAs(i+i/5, "B", 4000, name) })
			}
			return nil
		}}, cancel)
		c.names.max = most
		if err := errors.Join(c.copy(ctx, from, to), again); err != nil {
			t.Fatal(err)
		}
		twice := 0
		for _, n := range listed {
			twice += n - 1
		}
		if used := c.names.used.Load(); twice < 100 || used != 0 {
			t.Fatalf("%d of %d names were listed twice, %d are remembered", twice, len(listed), used)
		}
		mustBeCounted(t, c.Progress, to)
		err = remake(to.Name(), func(_ int, name string) error {
			info, err := os.Lstat(name)
			if err != nil || !info.Mode().IsRegular() {
				return err
			}
			b, err := os.ReadFile(name)
			if s := string(b); err != nil || s != strings.Repeat("A", 8000) && s != strings.Repeat("B", 4000) && s != "content" {
				t.Errorf("%s has %d times A and %d times B, %v", name, strings.Count(s, "A"), strings.Count(s, "B"), err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// After a server restart, a retransmitted request fails with EEXIST for what the first
// one has created.
func TestWhatAServerHasMadeTwice(t *testing.T) {
	for name, tt := range map[string]struct {
		fresh bool
		took  time.Duration
		says  error
		want  error
	}{
		"made":                {true, 0, nil, nil},
		"listed twice":        {false, 0, unix.EEXIST, errListedTwice},
		"cannot be there":     {true, time.Minute, unix.EEXIST, nil},
		"after a restart":     {false, time.Minute, unix.EEXIST, unix.EEXIST},
		"another error":       {true, 0, unix.EDQUOT, unix.EDQUOT},
		"another, and slowly": {false, time.Minute, unix.EDQUOT, unix.EDQUOT},
	} {
		synctest.Test(t, func(t *testing.T) {
			err := item{fresh: tt.fresh}.make(func() error {
				time.Sleep(tt.took)
				return tt.says
			})
			if !errors.Is(err, tt.want) || errors.Is(err, errListedTwice) != errors.Is(tt.want, errListedTwice) {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		})
	}
}

// NFSv3 returns ESTALE for an open file that was replaced.
func TestCopyOfAFileReplacedWhileRead(t *testing.T) {
	for _, step := range []string{"opened", "read"} {
		from, src := quick(t, testDir{"file": nil, "other": nil})
		to, dst := quick(t, testDir{})
		var replaced error
		p := mustCopy(t, from, to, CopyOptions{Workers: 1, at: once(step, "file", func() error {
			next := filepath.Join(src, "next")
			replaced = errors.Join(os.WriteFile(next, []byte("the next one"), 0o600), os.Rename(next, filepath.Join(src, "file")))
			return unix.ESTALE
		})})
		if b, err := os.ReadFile(filepath.Join(dst, "file")); replaced != nil || err != nil || string(b) != "the next one" || p.Gone() != 0 {
			t.Errorf("%s: copied %q, %d gone, %v, %v", step, b, p.Gone(), replaced, err)
		}
		mustBeCounted(t, p, to)
	}
}

// A file that keeps being replaced fails the copy, as it exists all the time.
func TestCopyOfAFileThatIsNeverTheSame(t *testing.T) {
	from, _ := root(t, testDir{"file": nil})
	to, _ := root(t, testDir{})
	err := Copy(t.Context(), from, to, CopyOptions{Workers: 1, at: func(step, _ string) error {
		if step == "opened" {
			return unix.ESTALE
		}
		return nil
	}})
	if !errors.Is(err, ErrChanged) || !errors.Is(err, unix.ESTALE) || !strings.Contains(err.Error(), "file") {
		t.Errorf("got %v", err)
	}
}

func TestCopyOfADirectoryReplacedWhileRead(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(src string) error
		gone bool
		want []string
	}{
		"another one": {func(src string) error {
			another := filepath.Join(src, "another")
			testDir{"x": nil, "sub": testDir{"y": nil}}.make(t, mkdir(t, another))
			return errors.Join(os.RemoveAll(filepath.Join(src, "dir")), os.Rename(another, filepath.Join(src, "dir")))
		}, false, []string{"dir", "dir/sub", "dir/sub/y", "dir/x", "keep"}},
		"a file": {func(src string) error {
			return errors.Join(os.RemoveAll(filepath.Join(src, "dir")), os.WriteFile(filepath.Join(src, "dir"), nil, 0o600))
		}, false, []string{"dir", "keep"}},
		"nothing": {func(src string) error { return os.RemoveAll(filepath.Join(src, "dir")) }, true, []string{"keep"}},
		"less": {func(src string) error {
			return errors.Join(os.Remove(filepath.Join(src, "dir/a")), os.RemoveAll(filepath.Join(src, "dir/d")))
		}, true, []string{"dir", "dir/b", "dir/c", "keep"}},
	} {
		t.Run(name, func(t *testing.T) {
			from, src := quick(t, testDir{"dir": testDir{"a": nil, "b": nil, "c": nil, "d": testDir{"e": nil}}, "keep": nil})
			to, dst := quick(t, testDir{})
			var do sync.Once
			p := mustCopy(t, from, to, CopyOptions{Workers: 1, at: func(step, name string) (err error) {
				if step == "listed" && strings.HasPrefix(name, "dir/") {
					do.Do(func() { err = tt.do(src) })
				}
				return err
			}})
			var got []string
			for _, line := range describe(t, dst)[1:] {
				got = append(got, strings.Fields(line)[0])
			}
			if !slices.Equal(got, tt.want) || (p.Gone() > 0) != tt.gone && tt.gone {
				t.Errorf("copied %q, %d gone, want %q", got, p.Gone(), tt.want)
			}
			mustBeCounted(t, p, to)
		})
	}
}

// A link to a file that was written to after its first name was copied has the new
// content, even if both are names of one inode.
func TestCopyOfALinkThatChanged(t *testing.T) {
	from, src := quick(t, testDir{"a": nil})
	if err := os.Link(filepath.Join(src, "a"), filepath.Join(src, "b")); err != nil {
		t.Fatal(err)
	}
	to, dst := quick(t, testDir{})
	n := 0
	p := mustCopy(t, from, to, CopyOptions{Workers: 1, at: func(step, name string) error {
		if step != "try" {
			return nil
		}
		if n++; n == 2 {
			return os.WriteFile(filepath.Join(src, name), []byte("written since"), 0o600)
		}
		return nil
	}})
	var got []string
	for _, name := range []string{"a", "b"} {
		b, err := os.ReadFile(filepath.Join(dst, name))
		if err != nil {
			t.Error(err)
		}
		got = append(got, string(b))
	}
	if slices.Sort(got); !slices.Equal(got, []string{"a", "written since"}) || p.Unlinked() != 1 {
		t.Errorf("copied %q, %d links became files", got, p.Unlinked())
	}
}

// Files that cannot be linked are copied.
func TestCopyOfLinksToAnotherFileSystem(t *testing.T) {
	from, src := quick(t, testDir{"a": nil})
	for _, name := range []string{"b", "c"} {
		if err := os.Link(filepath.Join(src, "a"), filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	to, dst := quick(t, testDir{})
	elsewhere := t.TempDir()
	p := &Progress{}
	err := Copy(t.Context(), from, to, CopyOptions{Workers: 2, Progress: p, Scratch: func() (*os.Root, error) { return os.OpenRoot(elsewhere) }})
	if err != nil || p.Unlinked() != 2 {
		t.Errorf("%d links became files, %v", p.Unlinked(), err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if b, err := os.ReadFile(filepath.Join(dst, name)); string(b) != "a" {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
	}
	mustBeCounted(t, p, to)
}

// The memory for linked files is bounded; links are found without it.
func TestCopyOfMoreLinksThanAreKnown(t *testing.T) {
	var l links
	for i := range 10 * maxKnown {
		l.remember(fileState{id: identity{1, uint64(i)}})
	}
	if len(l.known) > maxKnown {
		t.Errorf("%d are known", len(l.known))
	}
	from, src := quick(t, testDir{"a": nil, "d": testDir{}, "other": nil})
	for name, of := range map[string]string{"b": "a", "d/a": "a", "another": "other"} {
		if err := os.Link(filepath.Join(src, of), filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	to, dst := quick(t, testDir{})
	ctx, cancel := context.WithCancelCause(t.Context())
	c := newCopier(CopyOptions{Workers: 3, Scratch: scratchFor(to)}, cancel)
	c.links.full = true
	if err := c.copy(ctx, from, to); err != nil {
		t.Fatal(err)
	}
	if got, want := describe(t, dst), describe(t, src); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Removing an unfinished copy ends it: nothing is written to it any more.
func TestCopyThatIsRemoved(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(file string) error
		gone   bool
	}{
		"removed": {os.Remove, true},
		"written": {func(file string) error { return os.WriteFile(file, []byte("others'"), 0o600) }, false},
		"linked":  {func(file string) error { return os.Link(file, file+"-too") }, false},
	} {
		file := filepath.Join(t.TempDir(), "file")
		made, err := os.Create(file)
		if err == nil {
			err = tt.change(file)
		}
		if err != nil {
			t.Fatal(err)
		}
		c := newCopier(CopyOptions{}, func(error) {})
		tr := transfer{c: c, l: &level{path: "."}, dst: int(made.Fd()), src: -1, name: "file", size: 1}
		err = tr.fill(t.Context(), &unix.Stat_t{})
		if err == nil || errors.Is(err, os.ErrNotExist) != tt.gone {
			t.Errorf("%s: %v, want it to be gone: %t", name, err, tt.gone)
		}
		if err := made.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A name is listed again while its first listing waits for its worker.
func TestNameListedAgainWhileItIsCopied(t *testing.T) {
	for _, most := range []int64{maxNames, 1} { // with room for all names, and for one
		from, to := memory(t, "1m"), memory(t, "1m")
		for _, name := range []string{"a", "b"} {
			if err := os.Symlink("target", filepath.Join(from.Name(), name)); err != nil {
				t.Fatal(err)
			}
		}
		var tries atomic.Int32
		again := make(chan struct{})
		ctx, cancel := context.WithCancelCause(t.Context())
		c := newCopier(CopyOptions{Workers: 4, at: func(step, name string) error {
			if step == "try" && name == "a" && tries.Add(1) == 1 {
				select { // until the second try has created the file, unless that waits
				case <-again:
				case <-time.After(50 * time.Millisecond):
				}
			}
			return nil
		}}, cancel)
		c.names.max = most
		l, err := openTop(from, to)
		if err != nil {
			t.Fatal(err)
		}
		l.names.memory = &c.names
		for _, name := range []string{"a", "b", "a"} {
			if _, err := c.entry(ctx, l, item{name: name, kind: fs.ModeSymlink}); err != nil {
				t.Fatal(err)
			}
			if tries.Load() == 2 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if tries.Load() == 2 {
			close(again)
		}
		l.work.Wait()
		if n := l.count.Load(); n != 2 || context.Cause(ctx) != nil {
			t.Errorf("counted %d entries, want 2: %v", n, context.Cause(ctx))
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
}
