package catalog

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// GroupsDir has a directory for each group snapshot. Its members are directories in
// there, so that a single rename creates or deletes the group with all of them.
const GroupsDir = "groups"

// Group is the record of a group snapshot. It is written before the group is renamed
// into GroupsDir, and never changes.
type Group struct {
	Version int `json:"version"`
	// Name is the CSI name, whatever characters it has.
	Name string `json:"name"`
	ID   string `json:"id"`
	// Members are sorted by name.
	Members []Member  `json:"members"`
	Created time.Time `json:"created"`

	unknown unknown
}

// UnmarshalJSON implements json.Unmarshaler.
func (g *Group) UnmarshalJSON(b []byte) (err error) {
	type plain Group
	g.unknown, err = unmarshalFields(b, (*plain)(g))
	return err
}

// MarshalJSON implements json.Marshaler.
func (g Group) MarshalJSON() ([]byte, error) {
	type plain Group
	return marshalFields(plain(g), g.unknown)
}

// Member of a group: a snapshot with a record of its own.
type Member struct {
	ID       string `json:"id"`
	SourceID string `json:"sourceID"`

	unknown unknown
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Member) UnmarshalJSON(b []byte) (err error) {
	type plain Member
	m.unknown, err = unmarshalFields(b, (*plain)(m))
	return err
}

// MarshalJSON implements json.Marshaler.
func (m Member) MarshalJSON() ([]byte, error) {
	type plain Member
	return marshalFields(plain(m), m.unknown)
}

// GroupPath is the path of the group below the catalog's directory.
func GroupPath(name string) string { return path.Join(GroupsDir, name) }

// ReadGroup returns the record of a group; fs.ErrNotExist if there is none.
func (c *Catalog) ReadGroup(name string) (g Group, err error) {
	b, err := c.meta.ReadFile(path.Join(GroupPath(name), snapshotRecord))
	if err == nil {
		g, err = decodeGroup(b)
	}
	if err != nil {
		return Group{}, fmt.Errorf("record of group snapshot %s: %w", name, err)
	}
	return g, nil
}

func decodeGroup(b []byte) (Group, error) {
	var g Group
	if err := unmarshal(b, &g); err != nil {
		return Group{}, err
	}
	if g.Name == "" || g.ID == "" || len(g.Members) == 0 {
		return Group{}, &BrokenError{Reason: "record without a name, an ID or members"}
	}
	return g, nil
}

// WriteGroup writes the record into the directory that will become the group.
func (c *Catalog) WriteGroup(dir string, g Group) error {
	g.Version = recordVersion
	b, err := marshal(g)
	if err != nil {
		return err
	}
	if err := c.writeFile(path.Join(dir, snapshotRecord), b); err != nil {
		return fmt.Errorf("record of group snapshot %s: %w", g.Name, err)
	}
	return nil
}

// CheckMembers returns volume.ErrInvalid unless the group has the members that a caller
// expects, if any.
func (g Group) CheckMembers(expected []string) error {
	if len(expected) == 0 {
		return nil
	}
	have := make([]string, 0, len(g.Members))
	for _, m := range g.Members {
		have = append(have, m.ID)
	}
	slices.Sort(have)
	if !slices.Equal(have, slices.Sorted(slices.Values(expected))) {
		return fmt.Errorf("%w: its members are %s, not %s", volume.ErrInvalid, strings.Join(have, ", "), strings.Join(expected, ", "))
	}
	return nil
}
