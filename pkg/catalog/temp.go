package catalog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// TempName makes a name below TempDir that nobody else uses. It tells its age,
// for Abandoned.
func (c *Catalog) TempName(kind string) (string, error) {
	if err := c.meta.MkdirAll(TempDir, dirMode); err != nil {
		return "", err
	}
	return path.Join(TempDir, tempName(kind)), nil
}

// Temp is TempDir, open as long as the catalog, and a name as of TempName in it.
func (c *Catalog) Temp(kind string) (dir *os.File, name string, err error) {
	dir, err = c.dir(TempDir, true)
	return dir, tempName(kind), err
}

func tempName(kind string) string {
	return fmt.Sprintf("%s-%d-%s", kind, time.Now().UnixNano(), rand.Text())
}

func (c *Catalog) writeTemp(b []byte) (name string, err error) {
	if name, err = c.TempName("record"); err != nil {
		return "", err
	}
	return name, c.writeFile(name, b)
}

// writeFile makes a file, whole or not at all, where nobody else does: O_EXCL
// would be one more round trip.
func (c *Catalog) writeFile(name string, b []byte) error {
	f, err := c.meta.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, recordMode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	// A full disk may show only when the data reaches the server.
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, c.meta.Remove(name))
	}
	return nil
}

// Abandoned lists what lies below TempDir for longer than age and was not touched for
// as long: left there by a process that died. The file server's clock says so, for
// those of its clients may differ by hours. Names not made by TempName are not among
// them.
func (c *Catalog) Abandoned(age time.Duration) ([]string, error) {
	entries, err := fs.ReadDir(c.meta.FS(), TempDir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list temporary files: %w", err)
	}
	temp, err := c.dir(TempDir, false)
	if err != nil {
		return nil, err
	}
	now, err := c.touchTemp()
	if err != nil {
		return nil, fmt.Errorf("clock of the server: %w", err)
	}
	var old []string
	for _, e := range entries {
		made, ok := madeAt(e.Name())
		if !ok || strings.HasPrefix(e.Name(), KeptKind) {
			continue
		}
		// The name of a copy tells when it was begun, which may be long ago.
		if !strings.HasPrefix(e.Name(), CopyKind) && now.Sub(made) <= age {
			continue
		}
		// One that cannot be asked is left alone.
		if changed, err := fsat.ChangeTime(int(temp.Fd()), e.Name()); err == nil && now.Sub(changed) > age {
			old = append(old, path.Join(TempDir, e.Name()))
		}
	}
	return old, nil
}

// touchTemp returns the server's time, without a file that a full disk has no room for.
func (c *Catalog) touchTemp() (time.Time, error) {
	meta := int(c.metaDir.Fd())
	if err := fsat.Touch(meta, TempDir); err != nil {
		return time.Time{}, err
	}
	return fsat.ChangeTime(meta, TempDir)
}

// KeepAlive makes a copy in TempDir young again.
func (c *Catalog) KeepAlive(name string) error {
	temp, err := c.dir(TempDir, false)
	if err != nil {
		return err
	}
	return fsat.Touch(int(temp.Fd()), path.Base(name))
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
