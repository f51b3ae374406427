package volume

import (
	"fmt"
	"strings"
)

// OnDelete says what becomes of a volume's directory when the volume goes.
type OnDelete string

// The policies, by the words that csi-driver-nfs uses for them.
const (
	OnDeleteDelete  OnDelete = "delete"
	OnDeleteRetain  OnDelete = "retain"
	OnDeleteArchive OnDelete = "archive"
)

// ParseOnDelete reads a policy in any case. Empty stays empty: not said.
func ParseOnDelete(s string) (OnDelete, error) {
	switch p := OnDelete(strings.ToLower(s)); p {
	case "", OnDeleteDelete, OnDeleteRetain, OnDeleteArchive:
		return p, nil
	}
	return "", fmt.Errorf("%w: onDelete %q, known are delete, retain, archive", ErrInvalid, s)
}

// ID is everything a volume ID says.
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

// String writes the ID as csi-driver-nfs does, server#share#subDir#name#onDelete
// with slashes trimmed and the name only where it is not the subDir, so that
// either driver can serve it. onDelete is always written: a later change of a
// default must not decide about a volume made before it.
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
// Errors: ErrForeignID when the text has none of these forms; ErrInvalid when
// it has the form but a part of it is not safe to use.
func ParseID(s string) (ID, error) {
	parts := strings.Split(s, idSeparator)
	if len(parts) == 1 {
		parts = splitSlashID(s)
	}
	if len(parts) < 3 {
		return ID{}, fmt.Errorf("volume ID %q: %w", s, ErrForeignID)
	}
	if len(parts) > 5 {
		return ID{}, fmt.Errorf("volume ID %q: %w: %d parts, at most 5 are known", s, ErrInvalid, len(parts))
	}
	id, err := parseIDParts(append(parts, "", "")[:5])
	if err != nil {
		return ID{}, fmt.Errorf("volume ID %q: %w", s, err)
	}
	return id, nil
}

// splitSlashID takes server/share/subDir apart: the first segment is the
// server, the last the subDir.
func splitSlashID(s string) []string {
	server, rest, ok := strings.Cut(s, "/")
	last := strings.LastIndex(rest, "/")
	if !ok || last < 0 {
		return nil
	}
	return []string{server, rest[:last], rest[last+1:]}
}

func parseIDParts(parts []string) (ID, error) {
	share := parts[1]
	if strings.HasPrefix(share, "/") {
		return ID{}, fmt.Errorf("%w: share %q is absolute", ErrInvalid, share)
	}
	// The root of a server, trimmed by the writer, is the one empty part allowed.
	export, err := ParseExport(parts[0], "/"+share)
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
