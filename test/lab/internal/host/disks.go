package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// disk is a block device of the guest: a sparse file in the scratch directory.
type disk struct {
	name string // also the file's name; the guest sees them as ubda, ubdb, ... in order
	size string // as truncate(1) takes it
	mkfs []string
}

func (o Options) disks() []disk {
	all := []disk{
		{"ext4", o.Ext4Size, []string{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1"}},
		{"xfs", o.XFSSize, []string{"mkfs.xfs", "-q", "-f", "-m", "reflink=1"}},
	}
	if o.Cluster != nil {
		all = append(all, disk{"node", o.NodeSize, []string{"mkfs.ext4", "-q", "-F", "-O", "^has_journal"}})
	}
	return all
}

// make creates and formats the disk unless an earlier boot kept it.
func (d disk) make(scratch string) (string, error) {
	path := filepath.Join(scratch, d.name+".img")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, argv := range [][]string{{"truncate", "-s", d.size, path}, append(d.mkfs, path)} {
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("make disk %s of %s: %s: %w: %s", d.name, d.size, strings.Join(argv, " "), err, out)
		}
	}
	return path, nil
}
