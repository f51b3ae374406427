package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
)

// SnapshotPaths are the places of all snapshots that come after one of them, in
// order: members of groups as groups/NAME/MEMBER, then the others as
// snapshots/NAME. Whether there is a snapshot, ReadSnapshot tells.
func (c *Catalog) SnapshotPaths(after string) iter.Seq2[string, error] {
	dir, rest, _ := strings.Cut(after, "/")
	return func(yield func(string, error) bool) {
		if dir != SnapshotsDir {
			group, member, _ := strings.Cut(rest, "/")
			if !c.members(group, member, yield) {
				return
			}
			rest = ""
		}
		names, err := c.namesIn(SnapshotsDir)
		each(SnapshotsDir, names, rest, err, yield)
	}
}

// members yields those of groups that come after a member of a group.
func (c *Catalog) members(after, member string, yield func(string, error) bool) (goOn bool) {
	groups, err := c.namesIn(GroupsDir)
	if err != nil {
		return yield("", err)
	}
	for _, group := range groups {
		first := ""
		if group == after {
			first = member
		}
		if group < after {
			continue
		}
		names, err := c.namesIn(GroupPath(group))
		names = slices.DeleteFunc(names, func(n string) bool { return n == snapshotRecord })
		if !each(GroupPath(group), names, first, err, yield) {
			return false
		}
	}
	return true
}

func each(dir string, names []string, after string, err error, yield func(string, error) bool) (goOn bool) {
	if err != nil {
		return yield("", err)
	}
	for _, name := range names {
		if name > after && !yield(path.Join(dir, name), nil) {
			return false
		}
	}
	return true
}

// namesIn lists a directory of the catalog, in order.
func (c *Catalog) namesIn(dir string) ([]string, error) {
	entries, err := fs.ReadDir(c.meta.FS(), dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries { // sorted by fs.ReadDir
		names = append(names, e.Name())
	}
	return names, nil
}
