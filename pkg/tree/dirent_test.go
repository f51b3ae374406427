package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func list(t *testing.T, l *listing) (all []dirent) {
	t.Helper()
	for {
		e, err := l.next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

func TestListingTellsKinds(t *testing.T) {
	from, dir := root(t, testDir{"file": nil, "dir": testDir{}, "link": "file", "odd\n\xff": nil})
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := from.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := map[string]fs.FileMode{}
	for _, e := range list(t, &listing{fd: int(f.Fd())}) {
		got[e.name] = e.kind
	}
	want := map[string]fs.FileMode{"file": 0, "dir": fs.ModeDir, "link": fs.ModeSymlink, "fifo": fs.ModeNamedPipe, "odd\n\xff": 0}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

// The listing of a directory that was closed meanwhile continues where it stopped.
func TestListingGoesOnElsewhere(t *testing.T) {
	_, dir := root(t, testDir{})
	for i := range 1500 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("a-name-of-some-length-%d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func() *listing {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return &listing{fd: int(f.Fd())}
	}
	all := list(t, open())
	if len(all) != 1500 {
		t.Fatalf("listed %d entries", len(all))
	}
	for _, at := range []int{0, 1, 700, 1498, 1499} {
		again := open()
		if err := again.seek(all[at].next); err != nil {
			t.Fatal(err)
		}
		if got := list(t, again); !slices.Equal(got, all[at+1:]) {
			t.Errorf("after entry %d: %d entries, want %d", at, len(got), len(all)-at-1)
		}
	}
}
