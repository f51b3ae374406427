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

// SnapshotPaths yields the paths of all snapshots after a given one, sorted: members
// of groups as groups/NAME/MEMBER, then the others as snapshots/NAME. ReadSnapshot
// tells whether there is a snapshot.
func (c *Catalog) SnapshotPaths(after string) iter.Seq2[string, error] {
	dir, rest, _ := strings.Cut(after, "/")
	return func(yield func(string, error) bool) {
		if dir != SnapshotsDir {
			group, member, _ := strings.Cut(rest, "/")
			if !c.groupMembers(group, member, yield) {
				return
			}
			rest = ""
		}
		names, err := c.sortedNames(SnapshotsDir)
		yieldAfter(SnapshotsDir, names, rest, err, yield)
	}
}

// groupMembers yields the members of groups after a given member of a group.
func (c *Catalog) groupMembers(after, member string, yield func(string, error) bool) (goOn bool) {
	groups, err := c.sortedNames(GroupsDir)
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
		names, err := c.sortedNames(GroupPath(group))
		names = slices.DeleteFunc(names, func(n string) bool { return n == snapshotRecord })
		if !yieldAfter(GroupPath(group), names, first, err, yield) {
			return false
		}
	}
	return true
}

func yieldAfter(dir string, names []string, after string, err error, yield func(string, error) bool) (goOn bool) {
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

// sortedNames lists a directory of the catalog; a missing one is empty.
func (c *Catalog) sortedNames(dir string) ([]string, error) {
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
