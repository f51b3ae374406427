package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Below lists, in order, the directories in dir that are or lead to volumes; dir
// is empty for the export itself. One reading of one directory, however many
// volumes there are: whether a name is that of a volume, Read tells.
func (c *Catalog) Below(dir string) ([]string, error) {
	f, err := c.meta.Open(path.Join(volumesDir, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list volumes below %q: %w", dir, err)
	}
	// Not os.ReadDir, which may ask for the attributes of each.
	names, err := f.Readdirnames(-1)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list volumes below %q: %w", dir, err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == volume.RecordFile })
	slices.Sort(names)
	return names, nil
}
