package tree

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func pack(t testing.TB, members ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range members {
		h.Uid, h.Gid = os.Getuid(), os.Getgid()
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1e9, 0)
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestExtract(t *testing.T) {
	b := pack(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o2750},
		tar.Header{Typeflag: tar.TypeDir, Name: "./d", Mode: 0o500, ModTime: time.Unix(1e9+7, 0)},
		tar.Header{Typeflag: tar.TypeReg, Name: "./d/file", Mode: 0o4711},
		tar.Header{Typeflag: tar.TypeReg, Name: "no/parent", Mode: 0o600},
		tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "./d/file"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "soft", Linkname: "/etc/passwd"},
		tar.Header{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o620},
		tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3},
		tar.Header{Typeflag: tar.TypeReg, Name: "twice"},
		tar.Header{Typeflag: tar.TypeReg, Name: "twice"},
	)
	for _, compressed := range []bool{false, true} {
		in := b
		if compressed {
			in = gz(t, b)
		}
		to, dir := root(t, testDir{})
		p := &Progress{}
		if err := Extract(t.Context(), bytes.NewReader(in), compressed, to, p); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(describe(t, dir), "\n")
		for _, want := range []string{"d 40500 ", "d/file 104711 ", " 1000000007.0", "no/parent 100600", "soft 120777", "-> /etc/passwd", "fifo 10620", ". 42750 "} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		a, errA := os.Stat(filepath.Join(dir, "d/file"))
		h, errH := os.Stat(filepath.Join(dir, "hard"))
		if errA != nil || errH != nil || !os.SameFile(a, h) {
			t.Errorf("the hard link is none: %v, %v", errA, errH)
		}
		if _, entries, err := Count(t.Context(), to); err != nil || p.Devices() != 1 || p.Entries() != entries {
			t.Errorf("%d devices, %d entries of %d, %v", p.Devices(), p.Entries(), entries, err)
		}
	}
}

// An archive may return to a directory whose attributes have been set already.
func TestExtractIntoADirectoryAgain(t *testing.T) {
	then, later := time.Unix(1e9, 0), time.Unix(1e9+7, 0)
	b := pack(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "a", Mode: 0o750, ModTime: then},
		tar.Header{Typeflag: tar.TypeDir, Name: "a/b", Mode: 0o755, ModTime: then},
		tar.Header{Typeflag: tar.TypeReg, Name: "a/b/one"},
		tar.Header{Typeflag: tar.TypeDir, Name: "ab", Mode: 0o755, ModTime: then},
		tar.Header{Typeflag: tar.TypeReg, Name: "a/b/two"},
		tar.Header{Typeflag: tar.TypeLink, Name: "a/three", Linkname: "a/b/two"},
		tar.Header{Typeflag: tar.TypeDir, Name: "ab", Mode: 0o700, ModTime: later},
	)
	to, dir := root(t, testDir{})
	if err := Extract(t.Context(), bytes.NewReader(b), false, to, nil); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		mode os.FileMode
		at   time.Time
	}{"a": {0o750, then}, "a/b": {0o755, then}, "ab": {0o700, later}} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want.mode || !info.ModTime().Equal(want.at) {
			t.Errorf("%s: %s, %s, %v", name, info.Mode(), info.ModTime(), err)
		}
	}
}

// Only the directories that lead to the last member are kept.
func TestExtractKeepsNoDirectories(t *testing.T) {
	var members []tar.Header
	for i := range 2000 {
		members = append(members, tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("%d/b/c", i), Mode: 0o755})
	}
	to, _ := quick(t, testDir{})
	x := &extractor{to: to, progress: &Progress{}, open: []openDir{{name: "."}}}
	if err := x.all(t.Context(), tar.NewReader(bytes.NewReader(pack(t, members...)))); err != nil || len(x.open) != 4 {
		t.Errorf("%d directories are kept, %v", len(x.open), err)
	}
	long := pack(t, tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("d/", longestName) + "f"})
	if err := Extract(t.Context(), bytes.NewReader(long), false, to, nil); !errors.Is(err, errUnsafe) {
		t.Errorf("a long name: %v", err)
	}
}

// hostile archives that must be refused without changing anything around them.
func hostile() map[string][]tar.Header {
	return map[string][]tar.Header{
		"absolute":              {{Typeflag: tar.TypeReg, Name: "/escaped"}},
		"dots":                  {{Typeflag: tar.TypeReg, Name: "a/../../escaped"}},
		"dots directory":        {{Typeflag: tar.TypeDir, Name: "../escaped"}},
		"through a symlink":     {{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "../canary"}, {Typeflag: tar.TypeReg, Name: "l/keep"}},
		"symlink as directory":  {{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "../canary"}, {Typeflag: tar.TypeDir, Name: "l", Mode: 0o777}},
		"hard link out":         {{Typeflag: tar.TypeLink, Name: "h", Linkname: "../canary/keep"}},
		"absolute hard link":    {{Typeflag: tar.TypeLink, Name: "h", Linkname: "/etc/passwd"}},
		"hard link via symlink": {{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "../canary"}, {Typeflag: tar.TypeLink, Name: "h", Linkname: "l/keep"}},
		"file as the tree":      {{Typeflag: tar.TypeReg, Name: "."}},
	}
}

func TestExtractStaysInside(t *testing.T) {
	for name, members := range hostile() {
		around, dir := root(t, testDir{"canary": testDir{"keep": nil}, "in": testDir{}})
		before := describe(t, filepath.Join(dir, "canary"))
		to, err := around.OpenRoot("in")
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		if err := Extract(t.Context(), bytes.NewReader(pack(t, members...)), false, to, nil); err == nil {
			t.Errorf("%s: taken", name)
		}
		if after := describe(t, filepath.Join(dir, "canary")); !slices.Equal(before, after) {
			t.Errorf("%s: the canary changed to %q", name, after)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
			t.Errorf("%s: beside it are %v, %v", name, names, err)
		}
	}
	// A link to a symlink, or a file over one, stays within the tree.
	around, dir := root(t, testDir{"canary": testDir{"keep": nil}, "in": testDir{}})
	to, err := around.OpenRoot("in")
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	over := pack(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "../canary/keep"}, tar.Header{Typeflag: tar.TypeReg, Name: "l"})
	if err := Extract(t.Context(), bytes.NewReader(over), false, to, nil); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "canary/keep")); err != nil || string(b) != "keep" {
		t.Errorf("the canary has %q, %v", b, err)
	}
}

func TestExtractTakesNoPart(t *testing.T) {
	whole := gz(t, pack(t, tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("n", 90)}))
	for name, b := range map[string][]byte{
		"empty": nil, "half": whole[:len(whole)/2], "no checksum": whole[:len(whole)-6], "not gzip": []byte("hello, I am no archive"),
	} {
		to, _ := root(t, testDir{})
		if err := Extract(t.Context(), bytes.NewReader(b), true, to, nil); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func FuzzExtract(f *testing.F) {
	for _, members := range hostile() {
		f.Add(pack(f, members...))
	}
	f.Add(pack(f, tar.Header{Typeflag: tar.TypeDir, Name: "./d"}, tar.Header{Typeflag: tar.TypeReg, Name: "./d/f"}))
	// One tree around all of them, in which any escape would show.
	around, dir := root(f, testDir{"canary": testDir{"keep": nil}})
	before := describe(f, filepath.Join(dir, "canary"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			t.Skip("larger archives are not of more interest")
		}
		if err := around.Mkdir("in", 0o700); err != nil {
			t.Fatal(err)
		}
		to, err := around.OpenRoot("in")
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		_ = Extract(t.Context(), bytes.NewReader(b), false, to, nil)
		if after := describe(t, filepath.Join(dir, "canary")); !slices.Equal(before, after) {
			t.Errorf("the canary changed to %q", after)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
			t.Errorf("beside it are %v, %v", names, err)
		}
		if err := around.RemoveAll("in"); err != nil {
			t.Fatal(err)
		}
	})
}
