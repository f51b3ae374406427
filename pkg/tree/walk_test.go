package tree

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Some servers refuse an offset after a directory was changed, and the client then
// reports the end.
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
		f := frame{name: strings.Repeat("x", 250) + fmt.Sprint(i), again: []retry{{"again", 3}, {fmt.Sprint(i), 0}}}
		f.ID, f.Next, f.Cut, f.Mode, f.Atim = identity{1, uint64(i)}, int64(-i), i%2 == 0, 0o755, unix.Timespec{Sec: int64(i), Nsec: 7}
		return f
	}
	same := func(a, b frame) bool {
		return a.name == b.name && a.dirState == b.dirState && slices.Equal(a.again, b.again)
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
	if err := s.truncate(3000); err != nil {
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
