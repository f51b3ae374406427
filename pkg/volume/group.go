package volume

import (
	"fmt"
	"strings"
)

// GroupID is the parsed ID of a group snapshot.
type GroupID struct {
	Export Export
	// Name is the group's directory.
	Name string
}

const (
	groupIDParts = 6
	groupMark    = "group"
)

// groupForm writes the ID of a group, or of one of its members. The last part
// distinguishes it from the IDs of volumes and snapshots.
func groupForm(export Export, group, member, source string) string {
	return strings.Join([]string{
		export.Server, strings.Trim(export.Share, "/"), group, member, source, groupMark,
	}, idSeparator)
}

func isGroupForm(parts []string) bool {
	return len(parts) == groupIDParts && parts[groupIDParts-1] == groupMark
}

// String writes the ID as server#share#groupName###group, which is the ID of a member
// with the member's parts empty.
func (id GroupID) String() string { return groupForm(id.Export, id.Name, "", "") }

// ParseGroupID reads the ID of a group snapshot.
//
// Errors: ErrForeignID when the text does not have the form; ErrInvalid when it
// has it but a part of it is unsafe, or when it is the ID of a member.
func ParseGroupID(s string) (GroupID, error) {
	parts := strings.Split(s, idSeparator)
	if !isGroupForm(parts) {
		return GroupID{}, fmt.Errorf("group snapshot ID %q: %w", s, ErrForeignID)
	}
	id, err := parseGroupParts(parts)
	if err != nil {
		return GroupID{}, fmt.Errorf("group snapshot ID %q: %w", s, err)
	}
	return id, nil
}

func parseGroupParts(parts []string) (GroupID, error) {
	export, err := parseExportParts(parts)
	if err != nil {
		return GroupID{}, err
	}
	if parts[3] != "" || parts[4] != "" {
		return GroupID{}, fmt.Errorf("%w: it is the ID of a member", ErrInvalid)
	}
	if err := CheckComponent(parts[2]); err != nil {
		return GroupID{}, fmt.Errorf("name: %w", err)
	}
	return GroupID{Export: export, Name: parts[2]}, nil
}

// GroupParams are the parameters of a VolumeGroupSnapshotClass.
type GroupParams struct {
	SnapshotParams
	// AllowWrites allows a group snapshot of volumes that are written to meanwhile. It
	// does not show them at one point in time.
	AllowWrites bool
}

// keyWrites is whether to make a group snapshot of volumes that are being written to:
// allow or refuse.
const keyWrites = "writes"

// ParseGroupParams reads the parameters of a VolumeGroupSnapshotClass.
func ParseGroupParams(in map[string]string) (GroupParams, error) {
	values, err := foldKeys(in)
	if err != nil {
		return GroupParams{}, err
	}
	var p GroupParams
	switch values[keyWrites] {
	case "", "refuse":
	case "allow":
		p.AllowWrites = true
	default:
		return GroupParams{}, fmt.Errorf("%w: %s %q, must be one of allow and refuse", ErrInvalid, keyWrites, values[keyWrites])
	}
	if p.SnapshotParams, err = parseSnapshotParams(values, []string{keyWrites}); err != nil {
		return GroupParams{}, err
	}
	return p, nil
}
