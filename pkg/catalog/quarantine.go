package catalog

import (
	"net/url"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A directory to be deleted is first quarantined in TempDir, where nobody touches it for
// an hour, and then moved to the trash, which any controller may empty at any time. In
// between, the driver checks whose directory it was.

const (
	// quarantine is the prefix of the names of directories to be deleted.
	quarantine = "deleted"
	nameMax    = 255 // NAME_MAX
)

// QuarantineKind is the kind of a volume's directory in quarantine before deletion.
func QuarantineKind(subDir string) string { return kindOf(quarantine, subDir) }

// ArchivingKind is its kind in quarantine before it is archived.
func ArchivingKind(subDir string) string { return kindOf(KeptKind, subDir) }

// QuarantineName appends the original path to a name, for people and for
// QuarantinedFrom, unless the result is too long for a file name.
func QuarantineName(name, subDir string) string {
	full := name + "." + url.PathEscape(subDir)
	if len(full) > nameMax {
		return name
	}
	return full
}

// QuarantinedFrom returns the original path of a quarantined directory, if its name has
// it.
func QuarantinedFrom(name string) (subDir string, ok bool) {
	_, escaped, ok := strings.Cut(name, ".")
	if !ok || !strings.HasPrefix(name, quarantine) {
		return "", false
	}
	subDir, err := url.PathUnescape(escaped)
	return subDir, err == nil && volume.CheckSubDir(subDir) == nil
}
