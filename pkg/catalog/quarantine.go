package catalog

import (
	"net/url"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A directory that is to be deleted is quarantined in TempDir, where nobody touches it
// for an hour, and goes from there to the trash, which any controller empties at any
// time. Between the two there is time to see whose directory it was.

const (
	// quarantine begins the names of directories that are to be deleted.
	quarantine = "deleted"
	nameMax    = 255 // NAME_MAX
)

// QuarantineKind is the kind of a volume's directory that is to be deleted.
func QuarantineKind(subDir string) string { return kindOf(quarantine, subDir) }

// ArchivingKind is that of one that is to be archived.
func ArchivingKind(subDir string) string { return kindOf(KeptKind, subDir) }

// QuarantineName adds to a name where the directory was, for people to recognize and for
// QuarantinedFrom; not where that is too long for a name.
func QuarantineName(name, subDir string) string {
	full := name + "." + url.PathEscape(subDir)
	if len(full) > nameMax {
		return name
	}
	return full
}

// QuarantinedFrom returns where a quarantined directory was, if its name says so.
func QuarantinedFrom(name string) (subDir string, ok bool) {
	_, escaped, ok := strings.Cut(name, ".")
	if !ok || !strings.HasPrefix(name, quarantine) {
		return "", false
	}
	subDir, err := url.PathUnescape(escaped)
	return subDir, err == nil && volume.CheckSubDir(subDir) == nil
}
