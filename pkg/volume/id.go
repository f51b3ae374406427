package volume

import (
	"fmt"
	"strings"
)

// OnDelete is what happens to a volume's directory when the volume is deleted.
type OnDelete string

// The policies, named as in csi-driver-nfs.
const (
	OnDeleteDelete  OnDelete = "delete"
	OnDeleteRetain  OnDelete = "retain"
	OnDeleteArchive OnDelete = "archive"
)

// ParseOnDelete reads a policy, ignoring case. Empty stays empty: unset.
func ParseOnDelete(s string) (OnDelete, error) {
	switch p := OnDelete(strings.ToLower(s)); p {
	case "", OnDeleteDelete, OnDeleteRetain, OnDeleteArchive:
		return p, nil
	}
	return "", fmt.Errorf("%w: onDelete %q, must be one of delete, retain, archive", ErrInvalid, s)
}

// ID is a parsed volume ID.
type ID struct {
	Export Export
	// SubDir is the volume's directory below the export, never empty.
	SubDir string
	// Name is the CSI name where it differs from SubDir, else equal to it.
	Name string
	// OnDelete is empty in IDs that csi-driver-nfs wrote under its default.
	OnDelete OnDelete
}

const idSeparator = "#"

// SameVolume compares IDs without their policies, which do not identify a volume.
func (id ID) SameVolume(other ID) bool {
	id.OnDelete, other.OnDelete = "", ""
	return id == other
}

// String writes the ID as csi-driver-nfs does, server#share#subDir#name#onDelete
// with slashes trimmed and the name only if it differs from subDir, so that either
// driver can serve it. onDelete is always written: a later change of the default must
// not apply to existing volumes.
func (id ID) String() string {
	name := id.Name
	if name == id.SubDir {
		name = ""
	}
	policy := id.OnDelete
	if policy == "" {
		policy = OnDeleteDelete
	}
	return strings.Join([]string{
		id.Export.Server, strings.Trim(id.Export.Share, "/"), id.SubDir, name, string(policy),
	}, idSeparator)
}

// ParseID reads an ID of this driver and every form csi-driver-nfs ever wrote:
// three to five parts joined by '#', and server/share/subDir.
//
// Errors: ErrForeignID when the text has none of these forms, or that of the static
// PersistentVolumes in the examples of csi-driver-nfs, server/share##; ErrInvalid when
// it has the form but a part of it is unsafe.
func ParseID(s string) (ID, error) {
	parts := strings.Split(s, idSeparator)
	if len(parts) == 1 {
		parts = splitSlashID(s)
	}
	if len(parts) < 3 || strings.Contains(parts[0], "/") {
		return ID{}, fmt.Errorf("volume ID %q: %w", s, ErrForeignID)
	}
	if len(parts) > 5 {
		return ID{}, fmt.Errorf("volume ID %q: %w: %d parts, at most 5 are possible", s, ErrInvalid, len(parts))
	}
	id, err := parseIDParts(append(parts, "", "")[:5])
	if err != nil {
		return ID{}, fmt.Errorf("volume ID %q: %w", s, err)
	}
	return id, nil
}

// splitSlashID splits server/share/subDir: the first segment is the server, the last
// the subDir.
func splitSlashID(s string) []string {
	server, rest, ok := strings.Cut(s, "/")
	last := strings.LastIndex(rest, "/")
	if !ok || last < 0 {
		return nil
	}
	return []string{server, rest[:last], rest[last+1:]}
}

func parseIDParts(parts []string) (ID, error) {
	export, err := parseExportParts(parts)
	if err != nil {
		return ID{}, err
	}
	if err := CheckSubDir(parts[2]); err != nil {
		return ID{}, err
	}
	id := ID{Export: export, SubDir: parts[2], Name: parts[3]}
	if id.Name == "" {
		id.Name = id.SubDir
	} else if err := CheckComponent(id.Name); err != nil {
		return ID{}, fmt.Errorf("name: %w", err)
	}
	id.OnDelete, err = ParseOnDelete(parts[4])
	return id, err
}

// parseExportParts reads the first two parts of an ID. An empty share is the root of a
// server, whose slash is trimmed in IDs.
func parseExportParts(parts []string) (Export, error) {
	if strings.HasPrefix(parts[1], "/") {
		return Export{}, fmt.Errorf("%w: share %q is absolute", ErrInvalid, parts[1])
	}
	return ParseExport(parts[0], "/"+parts[1])
}
