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

// Below lists the directories in dir that are volumes or lead to some, sorted; dir is
// empty for the export itself. It reads a single directory, however many volumes
// there are. Read tells whether a name is a volume.
func (c *Catalog) Below(dir string) ([]string, error) {
	f, err := c.meta.Open(path.Join(volumesDir, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list volumes below %q: %w", dir, err)
	}
	// Not os.ReadDir, which may stat every entry.
	names, err := f.Readdirnames(-1)
	err = errors.Join(err, f.Close())
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list volumes below %q: %w", dir, err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == volume.RecordFile })
	slices.Sort(names)
	return names, nil
}
