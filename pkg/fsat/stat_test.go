package fsat

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openDir(t *testing.T, dir string) int {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

func TestExists(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	must(t, os.Mkdir(dir, 0o755))
	fd := openDir(t, dir)
	if there, err := Exists(fd); !there || err != nil {
		t.Errorf("while it is there: %v, %v", there, err)
	}
	must(t, os.Remove(dir))
	must(t, os.Mkdir(dir, 0o755)) // another one of that name
	if there, err := Exists(fd); there || err != nil {
		t.Errorf("after it was replaced: %v, %v", there, err)
	}
}

func TestIsGone(t *testing.T) {
	for err, gone := range map[error]bool{
		&os.PathError{Op: "open", Path: "f", Err: unix.ENOENT}:    true,
		&os.PathError{Op: "open", Path: "f", Err: unix.ESTALE}:    true,
		&os.PathError{Op: "open", Path: "f", Err: unix.ENOTDIR}:   false,
		&os.PathError{Op: "open", Path: "f", Err: fs.ErrNotExist}: true,
		nil: false,
	} {
		if IsGone(err) != gone {
			t.Errorf("%v: %v", err, !gone)
		}
	}
}

// LstatNow is Lstat as far as type and identity go.
func TestLstatNow(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("none", filepath.Join(dir, "link")))
	fd := openDir(t, dir)
	want, err := Lstat(fd, "link")
	must(t, err)
	got, err := LstatNow(fd, "link")
	must(t, err)
	if got.Dev != want.Dev || got.Ino != want.Ino || got.Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := LstatNow(fd, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

func TestTouch(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	must(t, os.WriteFile(name, nil, 0o600))
	must(t, os.Chtimes(name, time.Unix(1, 0), time.Unix(1, 0)))
	fd := openDir(t, dir)
	must(t, Touch(fd, "file"))
	changed, err := ChangeTime(fd, "file")
	must(t, err)
	info, err := os.Stat(name)
	must(t, err)
	if !info.ModTime().Equal(changed) {
		t.Errorf("modified at %s, changed at %s", info.ModTime(), changed)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	fd := openDir(t, dir)
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000} {
		want := bytes.Repeat([]byte("x"), size)
		must(t, os.WriteFile(filepath.Join(dir, "file"), want, 0o600))
		if got, err := ReadFile(fd, "file"); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
	must(t, Mkfifo(fd, "fifo"))
	if got, err := ReadFile(fd, "fifo"); err != nil || len(got) != 0 {
		t.Errorf("a fifo without a writer: %q, %v", got, err)
	}
}

// Nothing that a symlink leads to changes its mode, and no permission is needed.
func TestChmod(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "locked"), 0))
	must(t, os.Symlink("locked", filepath.Join(dir, "link")))
	parent := openDir(t, dir)
	if _, err := Open(parent, "link", unix.O_PATH|unix.O_DIRECTORY, 0); !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		t.Errorf("through a symlink: %v", err)
	}
	fd, err := Open(parent, "locked", unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, Chmod(fd, "locked", 0o2750))
	if st, err := Stat(fd, "locked"); err != nil || st.Mode&0o7777 != 0o2750 {
		t.Errorf("mode %o, %v", st.Mode, err)
	}
}
