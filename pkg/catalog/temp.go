package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
)

// Abandoned lists what lies below TempDir for longer than age: left there by a
// process that died. Names not made by TempName are not among them.
func (c *Catalog) Abandoned(now time.Time, age time.Duration) ([]string, error) {
	entries, err := fs.ReadDir(c.meta.FS(), TempDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list temporary files: %w", err)
	}
	var old []string
	for _, e := range entries {
		made, ok := madeAt(e.Name())
		if !ok || now.Sub(made) <= age {
			continue
		}
		name := path.Join(TempDir, e.Name())
		if strings.HasPrefix(e.Name(), CopyKind) && c.keptAlive(name, now, age) {
			continue
		}
		old = append(old, name)
	}
	return old, nil
}

// keptAlive tells whether a copy, which takes as long as it takes, is still being
// made. One that cannot be asked is left alone.
func (c *Catalog) keptAlive(name string, now time.Time, age time.Duration) bool {
	info, err := c.meta.Lstat(name)
	return err != nil || now.Sub(info.ModTime()) <= age
}

// KeepAlive makes a copy in TempDir young again.
func (c *Catalog) KeepAlive(name string, now time.Time) error {
	return c.meta.Chtimes(name, now, now)
}

// Temporary lists the entries of TempDir of a kind.
func (c *Catalog) Temporary(kind string) ([]string, error) {
	entries, err := fs.ReadDir(c.meta.FS(), TempDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list temporary files: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), kind+"-") {
			names = append(names, path.Join(TempDir, e.Name()))
		}
	}
	return names, nil
}

// madeAt reads the time out of kind-<unix nanoseconds>-<random>.
func madeAt(name string) (time.Time, bool) {
	_, rest, ok := strings.Cut(name, "-")
	if !ok {
		return time.Time{}, false
	}
	nanos, _, ok := strings.Cut(rest, "-")
	if !ok {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(nanos, 10, 64)
	return time.Unix(0, n), err == nil
}
