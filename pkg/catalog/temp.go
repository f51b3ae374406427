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
		if made, ok := madeAt(e.Name()); ok && now.Sub(made) > age {
			old = append(old, path.Join(TempDir, e.Name()))
		}
	}
	return old, nil
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
