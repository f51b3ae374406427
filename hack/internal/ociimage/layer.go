package ociimage

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

const defaultMode fs.FileMode = 0o755

// epoch replaces every time in the image.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

// writeLayer writes the entries and the directories they need as a tar stream,
// sorted by path, all owned by root.
func writeLayer(w io.Writer, entries []Entry) error {
	tw := tar.NewWriter(w)
	for _, e := range withParents(entries) {
		if err := writeEntry(tw, e); err != nil {
			return fmt.Errorf("pack %s: %w", e.Path, err)
		}
	}
	return tw.Close()
}

func withParents(entries []Entry) []Entry {
	all := map[string]Entry{}
	for _, e := range entries {
		for dir := path.Dir(e.Path); dir != "/"; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = Entry{Path: dir, Dir: true}
			}
		}
	}
	for _, e := range entries {
		all[e.Path] = e
	}
	sorted := make([]Entry, 0, len(all))
	for _, e := range all {
		sorted = append(sorted, e)
	}
	slices.SortFunc(sorted, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return sorted
}

func writeEntry(tw *tar.Writer, e Entry) error {
	header := &tar.Header{
		Name:    strings.TrimPrefix(e.Path, "/"),
		Mode:    tarMode(e.Mode),
		ModTime: epoch(),
		Format:  tar.FormatPAX,
	}
	switch {
	case e.Dir:
		header.Typeflag = tar.TypeDir
		header.Name += "/"
		return tw.WriteHeader(header)
	case e.Link != "":
		header.Typeflag = tar.TypeSymlink
		header.Linkname = e.Link
		return tw.WriteHeader(header)
	default:
		header.Typeflag = tar.TypeReg
		return writeFile(tw, header, e.Source)
	}
}

func writeFile(tw *tar.Writer, header *tar.Header, source string) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read from
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file", ErrSpec, source)
	}
	header.Size = info.Size()
	if err := tw.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}

// tarMode is the mode for tar(5), whose special bits differ from those of fs.FileMode.
func tarMode(mode fs.FileMode) int64 {
	if mode == 0 {
		mode = defaultMode
	}
	bits := int64(mode.Perm())
	for _, special := range []struct {
		mode fs.FileMode
		bit  int64
	}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}} {
		if mode&special.mode != 0 {
			bits |= special.bit
		}
	}
	return bits
}
