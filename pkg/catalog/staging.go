package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// The kind of entries of TempDir that belong to one directory contains its hash. A copy
// is made in a staging directory, which only the process that made it writes to.

// Kinds of staging directories.
const (
	volumeStaging   = CopyKind + ".volume."
	snapshotStaging = CopyKind + ".snapshot."
)

func kindOf(prefix, subDir string) string {
	sum := sha256.Sum256([]byte(subDir))
	return prefix + hex.EncodeToString(sum[:8])
}

// StagingKind is the kind of the staging directories for all copies to a volume's
// directory or to a path below the catalog's directory.
func StagingKind(subDir string) string {
	if strings.HasPrefix(subDir, volume.MetaDir+"/") {
		return kindOf(snapshotStaging, subDir)
	}
	return kindOf(volumeStaging, subDir)
}

// EndStaging moves a staging directory to the trash. It uses the same rename as the end
// of the copy, so that only one of the two succeeds: a copy of a volume renames the
// content out of the staging directory.
func (c *Catalog) EndStaging(name string) error {
	info, err := c.meta.Lstat(name)
	if err != nil {
		return fsat.IgnoreNotExist(err)
	}
	if info.IsDir() && strings.HasPrefix(path.Base(name), volumeStaging) { // and not a symlink
		if err := c.Discard(path.Join(name, SnapshotData)); err != nil {
			return err
		}
	}
	return c.Discard(name)
}

// EndStagings moves all staging directories of subDir but one to the trash.
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
