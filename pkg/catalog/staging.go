package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Entries of TempDir that belong to one directory have its hash in their kind. A copy
// is made in a staging directory, which only its maker writes to.

// What is made in a staging directory, as its name says.
const (
	volumeStaging   = CopyKind + ".volume."
	snapshotStaging = CopyKind + ".snapshot."
)

func kindOf(prefix, subDir string) string {
	sum := sha256.Sum256([]byte(subDir))
	return prefix + hex.EncodeToString(sum[:8])
}

// StagingKind is the kind of the staging directories of a volume's directory or of a
// path of the catalog: the same for all copies to it.
func StagingKind(subDir string) string {
	if strings.HasPrefix(subDir, volume.MetaDir+"/") {
		return kindOf(snapshotStaging, subDir)
	}
	return kindOf(volumeStaging, subDir)
}

// EndStaging moves a staging directory to the trash, by the rename that its maker ends
// it with: either of the two finds nothing to rename. That of a volume renames what was
// copied out of the staging directory, which it may have open.
func (c *Catalog) EndStaging(name string) error {
	info, err := c.meta.Lstat(name)
	if err != nil {
		return fsat.IgnoreNotExist(err)
	}
	if info.IsDir() && strings.HasPrefix(path.Base(name), volumeStaging) { // or somebody's symlink
		if err := c.Discard(path.Join(name, SnapshotData)); err != nil {
			return err
		}
	}
	return c.Discard(name)
}

// EndStagings moves the staging directories of subDir to the trash, all but one.
func (c *Catalog) EndStagings(subDir, but string) error {
	names, err := c.Temporary(StagingKind(subDir))
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != but {
			if err := c.EndStaging(name); err != nil {
				return err
			}
		}
	}
	return nil
}
