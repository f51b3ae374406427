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

// TempName returns a unique path below TempDir. It contains the time, for Abandoned.
func (c *Catalog) TempName(kind string) (string, error) {
	if err := c.meta.MkdirAll(TempDir, dirMode); err != nil {
		return "", err
	}
	return path.Join(TempDir, tempName(kind)), nil
}

// Temp returns TempDir, open as long as the catalog, and a unique name in it.
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

// writeFile writes a file completely or not at all. The name must be unique, as
// O_EXCL would cost another round trip.
func (c *Catalog) writeFile(name string, b []byte) error {
	f, err := c.meta.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, recordMode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	// ENOSPC may only show when the data reaches the server.
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, c.meta.Remove(name))
	}
	return nil
}

// Abandoned lists entries of TempDir that were neither created nor touched within age:
// a dead process left them behind. Age is measured by the file server's clock, as
// clients may be hours apart. Names not made by TempName are left out.
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
		// The time in the name of a copy is that of its beginning, which may be long ago.
		if !strings.HasPrefix(e.Name(), CopyKind) && now.Sub(made) <= age {
			continue
		}
		// Skip one whose ctime cannot be read.
		if changed, err := fsat.ChangeTime(int(temp.Fd()), e.Name()); err == nil && now.Sub(changed) > age {
			old = append(old, path.Join(TempDir, e.Name()))
		}
	}
	return old, nil
}

// touchTemp returns the server's time without creating a file, which a full disk has no
// room for.
func (c *Catalog) touchTemp() (time.Time, error) {
	meta := int(c.metaDir.Fd())
	if err := fsat.Touch(meta, TempDir); err != nil {
		return time.Time{}, err
	}
	return fsat.ChangeTime(meta, TempDir)
}

// KeepAlive refreshes the heartbeat of a copy in TempDir, so that it is not Abandoned.
func (c *Catalog) KeepAlive(name string) error {
	temp, err := c.dir(TempDir, false)
	if err != nil {
		return err
	}
	return fsat.Touch(int(temp.Fd()), path.Base(name))
}

// Temporary lists the entries of a kind in TempDir.
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

// madeAt returns the time in a name of the form kind-<unix nanoseconds>-<random>.
func madeAt(name string) (time.Time, bool) {
	parts := strings.SplitN(name, "-", 3)
	if len(parts) < 3 {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	return time.Unix(0, n), err == nil
}
