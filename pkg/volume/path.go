package volume

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MetaDir is the driver's own directory at the root of an export.
	MetaDir = ".nfs-csi"
	// RecordFile is the name of a volume's record below MetaDir. As a component of a
	// volume's path it would collide with a record.
	RecordFile = ".record.json"

	maxComponent = 255  // NAME_MAX
	maxPath      = 1024 // well under PATH_MAX with the export's own path before it
	maxName      = 128  // CSI spec, "Size Limits"
)

// CheckComponent reports why s cannot be one component of a path on a share.
// '#' separates the parts of a volume ID, and some servers use '\' as a separator.
func CheckComponent(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: empty path component", ErrInvalid)
	case s == "." || s == "..":
		return fmt.Errorf("%w: path component %q", ErrInvalid, s)
	case s == MetaDir || s == RecordFile:
		return fmt.Errorf("%w: path component %q is reserved for the driver", ErrInvalid, s)
	case len(s) > maxComponent:
		return fmt.Errorf("%w: path component of %d bytes, at most %d are possible", ErrInvalid, len(s), maxComponent)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: path component %q is not UTF-8", ErrInvalid, s)
	case strings.ContainsAny(s, `/\#`):
		return fmt.Errorf(`%w: path component %q contains '/', '\' or '#'`, ErrInvalid, s)
	case strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("%w: path component %q contains a control character", ErrInvalid, s)
	}
	return nil
}

// CheckSubDir reports why s cannot be a volume's directory relative to its export. The
// empty path, which is the export itself, is refused.
func CheckSubDir(s string) error {
	if len(s) > maxPath {
		return fmt.Errorf("%w: volume directory of %d bytes, at most %d are possible", ErrInvalid, len(s), maxPath)
	}
	return CheckBelow(s)
}

// CheckBelow is CheckSubDir for a path of any length: the name of an archive is longer
// than that of its volume.
func CheckBelow(s string) error {
	if s == "" {
		return fmt.Errorf("%w: empty volume directory, it would be the export itself", ErrInvalid)
	}
	if path.IsAbs(s) {
		return fmt.Errorf("%w: volume directory %q is absolute", ErrInvalid, s)
	}
	for c := range strings.SplitSeq(s, "/") {
		if err := CheckComponent(c); err != nil {
			return fmt.Errorf("volume directory %q: %w", s, err)
		}
	}
	return nil
}

// DirName is the directory name of a volume with a CSI name, which may be any Unicode
// string of up to 128 bytes: the name itself if it is a safe path component, else its
// hash. The record keeps the name, so that no two names ever share a directory.
func DirName(name string) (string, error) {
	switch {
	case name == "":
		return "", fmt.Errorf("%w: empty volume name", ErrInvalid)
	case len(name) > maxName:
		return "", fmt.Errorf("%w: volume name of %d bytes, at most %d are allowed", ErrInvalid, len(name), maxName)
	}
	// A leading dot would hide the directory, and NFS clients rename removed files that
	// are still open to ".nfs...".
	if name[0] != '.' && CheckComponent(name) == nil {
		return name, nil
	}
	sum := sha256.Sum256([]byte(name))
	return "csi-" + hex.EncodeToString(sum[:20]), nil
}
