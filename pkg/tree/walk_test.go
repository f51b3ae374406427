package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// ladder is a tree deeper than a walk keeps open, with entries before and after each
// directory on the path down.
func ladder(depth int) testDir {
	d := testDir{"bottom": nil}
	for i := range depth {
		d = testDir{"a": nil, "down": d, "m": testDir{"n": nil}, "z": nil, fmt.Sprint("on-", i): nil}
	}
	return d
}

func TestCopyOfADeepTree(t *testing.T) {
	for _, workers := range []int{1, 8} {
		from, src := quick(t, ladder(3*openLevels))
		to, dst := quick(t, testDir{})
		p := mustCopy(t, from, to, CopyOptions{Workers: workers, Frozen: true})
		if got, want := describe(t, dst), describe(t, src); !slices.Equal(got, want) {
			t.Errorf("%d workers: %d lines differ from the %d of the source", workers, len(got), len(want))
		}
		mustBeCounted(t, p, to)
	}
}

func steps(n int) string { return strings.TrimSuffix(strings.Repeat("down/", n), "/") }

// Directories are moved, removed and replaced while the walk is far below them.
func TestCopyOfATreeThatIsMovedAbove(t *testing.T) {
	const depth = 3 * openLevels
	swap := func(src string, level int, with testDir) error {
		at, elsewhere := filepath.Join(src, steps(level)), filepath.Join(filepath.Dir(src), fmt.Sprint("elsewhere-", level))
		if err := os.Rename(at, elsewhere); err != nil || with == nil {
			return err
		}
		return os.Mkdir(at, 0o755)
	}
	for name, tt := range map[string]struct {
		do func(src string) error
		// levels that the copy has, and what is in the last of them.
		levels int
		last   []string
	}{
		"moved out":        {func(src string) error { return swap(src, 20, nil) }, depth, []string{"bottom"}},
		"moved up":         {func(src string) error { return os.Rename(filepath.Join(src, steps(20)), filepath.Join(src, "down/up")) }, depth, []string{"bottom"}},
		"swapped":          {func(src string) error { return swap(src, 20, testDir{}) }, depth, []string{"bottom"}},
		"swapped and lost": {func(src string) error { return errors.Join(swap(src, 20, nil), swap(src, 5, testDir{})) }, 5, []string{}},
		"moved and lost":   {func(src string) error { return errors.Join(swap(src, 20, nil), swap(src, 5, nil)) }, 4, []string{"a", "m", "on-43", "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, parent := quick(t, testDir{"tree": ladder(depth)})
			src := filepath.Join(parent, "tree")
			from, err := os.OpenRoot(src)
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			to, dst := quick(t, testDir{})
			var do sync.Once
			var failed error
			ctx, cancel := context.WithCancelCause(t.Context())
			c := newCopier(CopyOptions{Workers: 1, at: func(step, name string) error {
				if step == "leave" && strings.HasSuffix(name, steps(depth)) {
					do.Do(func() { failed = tt.do(src) })
				}
				return nil
			}}, cancel)
			c.dirs = nil // one walk for all of it
			if err := errors.Join(c.copy(ctx, from, to), failed); err != nil {
				t.Fatal(err)
			}
			mustBeCounted(t, c.Progress, to)
			list, err := os.ReadDir(filepath.Join(dst, steps(tt.levels)))
			names := []string{}
			for _, e := range list {
				names = append(names, e.Name())
			}
			if err != nil || !slices.Equal(names, tt.last) {
				t.Errorf("at level %d are %q, %v, want %q", tt.levels, names, err, tt.last)
			}
		})
	}
}

// Some servers refuse an offset after a directory has changed, and the client then
// reports the end of the listing.
func TestListingThatCannotBeResumed(t *testing.T) {
	for _, repeats := range []bool{true, false} {
		from, _ := root(t, testDir{"a": nil, "b": nil, "c": nil})
		for seen, want := range map[int64]int{3: 0, 2: 3} {
			l, err := openTop(from, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.entries.next(); err != nil {
				t.Fatal(err)
			}
			if err := l.entries.seek(math.MaxInt64); err != nil {
				t.Skip("no offset that is past the end: ", err)
			}
			l.resumed, l.repeats, l.seen = true, repeats, seen
			got := 0
			for err == nil {
				if _, err = l.nextItem(); err == nil {
					got++
				}
			}
			var moved *movedError
			if !repeats && want > 0 {
				if !errors.As(err, &moved) {
					t.Errorf("%d of 3 seen: %v", seen, err)
				}
			} else if got != want || !errors.Is(err, io.EOF) {
				t.Errorf("%d of 3 seen: %d more, %v, want %d", seen, got, err, want)
			}
			if err := l.close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestFrames(t *testing.T) {
	const n = 5000 // of some 2 MiB
	s := frames{spill: func() (*os.File, error) { return os.CreateTemp(t.TempDir(), "") }}
	want := func(i int) frame {
		f := frame{name: strings.Repeat("x", 250) + fmt.Sprint(i), retries: []retry{{"again", 3}, {fmt.Sprint(i), 0}}}
		f.ID, f.Next, f.Missed, f.Mode, f.Atim = identity{1, uint64(i)}, int64(-i), i%2 == 0, 0o755, unix.Timespec{Sec: int64(i), Nsec: 7}
		return f
	}
	same := func(a, b frame) bool {
		return a.name == b.name && a.dirState == b.dirState && slices.Equal(a.retries, b.retries)
	}
	for i := range n {
		f := want(i)
		if err := s.push(&f); err != nil {
			t.Fatal(err)
		}
		if len(s.buf) > 2*spillBlock+1000 {
			t.Fatalf("%d bytes are in memory", len(s.buf))
		}
	}
	i := 0
	err := s.each(func(f *frame) (bool, error) {
		if !same(*f, want(i)) {
			t.Errorf("frame %d is %+v", i, f)
		}
		i++
		return i < n-1, nil
	})
	if err != nil || i != n-1 {
		t.Errorf("went through %d, %v", i, err)
	}
	for s.depth > 3000 && err == nil {
		_, err = s.pop()
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := 2999; i >= 0; i-- {
		if f, err := s.pop(); err != nil || !same(f, want(i)) {
			t.Fatalf("frame %d is %+v, %v", i, f, err)
		}
	}
	if _, err := s.pop(); !errors.Is(err, io.EOF) || s.depth != 0 {
		t.Errorf("%d are left, %v", s.depth, err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

func TestFramesWithoutAFile(t *testing.T) {
	var s frames
	var err error
	for err == nil && s.depth < 1<<20 {
		err = s.push(&frame{})
	}
	if !errors.Is(err, errTooDeep) || s.depth < 100000 {
		t.Errorf("%d levels, %v", s.depth, err)
	}
}
