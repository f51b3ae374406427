package volume

import (
	"fmt"
	"maps"
	"strings"
)

// SnapshotID is a parsed snapshot ID.
type SnapshotID struct {
	Export Export
	// Name is the snapshot's directory.
	Name string
	// Source is the name or the subDir of the source volume.
	Source string
	// Group is the directory of the group snapshot that contains it; empty for none.
	Group string
}

const snapshotIDParts = 5

// String writes the ID as csi-driver-nfs does:
// server#share#snapName#snapName#srcName with slashes trimmed. The ID of a member of a
// group snapshot is server#share#groupName#member#srcName#group.
func (id SnapshotID) String() string {
	if id.Group != "" {
		return groupForm(id.Export, id.Group, id.Name, id.Source)
	}
	return strings.Join([]string{
		id.Export.Server, strings.Trim(id.Export.Share, "/"), id.Name, id.Name, id.Source,
	}, idSeparator)
}

// GroupID is the ID of the group snapshot that contains this one; nil for none.
func (id SnapshotID) GroupID() *GroupID {
	if id.Group == "" {
		return nil
	}
	return &GroupID{Export: id.Export, Name: id.Group}
}

// ParseSnapshotID reads an ID of this driver or of csi-driver-nfs.
//
// Errors: ErrForeignID when the text does not have the form; ErrInvalid when it
// has it but a part of it is unsafe.
func ParseSnapshotID(s string) (SnapshotID, error) {
	parts := strings.Split(s, idSeparator)
	group := isGroupForm(parts)
	if len(parts) != snapshotIDParts && !group {
		return SnapshotID{}, fmt.Errorf("snapshot ID %q: %w", s, ErrForeignID)
	}
	id, err := parseSnapshotParts(parts, group)
	if err != nil {
		return SnapshotID{}, fmt.Errorf("snapshot ID %q: %w", s, err)
	}
	return id, nil
}

func parseSnapshotParts(parts []string, group bool) (SnapshotID, error) {
	export, err := parseExportParts(parts)
	if err != nil {
		return SnapshotID{}, err
	}
	id := SnapshotID{Export: export, Name: parts[3], Source: parts[4]}
	if group {
		id.Group = parts[2]
	}
	if !group && parts[2] != parts[3] {
		return SnapshotID{}, fmt.Errorf("%w: it has two names, %q and %q", ErrInvalid, parts[2], parts[3])
	}
	for _, name := range parts[2:4] {
		if err := CheckComponent(name); err != nil {
			return SnapshotID{}, fmt.Errorf("name: %w", err)
		}
	}
	if err := CheckSubDir(id.Source); err != nil {
		return SnapshotID{}, fmt.Errorf("source: %w", err)
	}
	return id, nil
}

// SnapshotParams are the parameters of a VolumeSnapshotClass.
type SnapshotParams struct {
	// Export of the snapshot; nil for that of the volume.
	Export       *Export
	MountOptions string
}

// ParseSnapshotParams reads the parameters of a VolumeSnapshotClass. Those that
// begin with csi.storage.k8s.io/ are the sidecar's and are ignored.
func ParseSnapshotParams(in map[string]string) (SnapshotParams, error) {
	values, err := foldKeys(in)
	if err != nil {
		return SnapshotParams{}, err
	}
	return parseSnapshotParams(values, nil)
}

// parseSnapshotParams leaves the keys in more to the caller.
func parseSnapshotParams(values map[string]string, more []string) (SnapshotParams, error) {
	maps.DeleteFunc(values, func(key, _ string) bool { return strings.HasPrefix(key, "csi.storage.k8s.io/") })
	if err := checkKnown(values, append([]string{KeyServer, KeyShare, KeyMountOptions}, more...), "parameter"); err != nil {
		return SnapshotParams{}, err
	}
	p := SnapshotParams{MountOptions: values[strings.ToLower(KeyMountOptions)]}
	server, share := values[KeyServer], values[KeyShare]
	if server == "" && share == "" {
		return p, nil
	}
	export, err := ParseExport(server, share)
	if err != nil {
		return SnapshotParams{}, fmt.Errorf("parameters: %w", err)
	}
	p.Export = &export
	return p, nil
}
