package copies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// sameGroup finds the group of an earlier call; fs.ErrNotExist if there is none.
func sameGroup(cat *catalog.Catalog, id volume.GroupID, sources []Handle) (Group, error) {
	rec, err := cat.ReadGroup(id.Name)
	if err != nil {
		return Group{}, err
	}
	have := make([]Handle, 0, len(rec.Members))
	for _, m := range rec.Members {
		source, err := volume.ParseID(m.SourceID)
		if err != nil {
			return Group{}, fmt.Errorf("record of group snapshot %s: %w", id.Name, err)
		}
		have = append(have, Handle{source, m.SourceID})
	}
	if !slices.EqualFunc(have, sources, func(a, b Handle) bool { return a.SameVolume(b.ID) }) {
		return Group{}, fmt.Errorf("%w: there is a group of that name, of %s", volume.ErrSnapshotDiffers, sourcesOf(have))
	}
	return groupOf(cat, rec)
}

// groupOf reads the members of a group.
func groupOf(cat session.Records, rec catalog.Group) (Group, error) {
	id, err := volume.ParseGroupID(rec.ID)
	if err != nil {
		return Group{}, fmt.Errorf("record of group snapshot %s: %w", rec.Name, err)
	}
	g := Group{ID: id, Created: rec.Created}
	for _, m := range rec.Members {
		member, err := volume.ParseSnapshotID(m.ID)
		if err != nil {
			return Group{}, fmt.Errorf("record of group snapshot %s: %w", rec.Name, err)
		}
		rec, err := cat.ReadSnapshot(SnapshotPath(member))
		if err != nil {
			return Group{}, err
		}
		snap, err := SnapshotOf(rec)
		if err != nil {
			return Group{}, err
		}
		g.Members = append(g.Members, snap)
	}
	return g, nil
}

// GetGroup returns the group, or volume.ErrSnapshotNotFound. Members, if not empty, are
// the IDs of the snapshots that the caller expects.
//
// Errors: volume.ErrInvalid when the members differ, those of share.Cache.
func (c *Copies) GetGroup(ctx context.Context, id volume.GroupID, members, mountOptions []string) (Group, error) {
	t := c.cfg.Target(groupKey(id), mountOptions)
	found, err := session.Result(ctx, c.cfg.Exports.View, t, func(_ context.Context, x *session.Session) (Group, error) {
		rec, err := x.Records().ReadGroup(id.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return Group{}, volume.ErrSnapshotNotFound
		case err != nil:
			return Group{}, err
		case rec.ID != id.String():
			return Group{}, fmt.Errorf("%w: its name is that of %s", volume.ErrSnapshotNotFound, rec.ID)
		}
		if err := sameMembers(rec, members); err != nil {
			return Group{}, err
		}
		return groupOf(x.Records(), rec)
	})
	if err != nil {
		return Group{}, fmt.Errorf("group snapshot %s: %w", id, err)
	}
	return found, nil
}

// sameMembers checks the members that a caller expects, if any.
func sameMembers(rec catalog.Group, members []string) error {
	if len(members) == 0 {
		return nil
	}
	have := make([]string, 0, len(rec.Members))
	for _, m := range rec.Members {
		have = append(have, m.ID)
	}
	slices.Sort(have)
	if !slices.Equal(have, slices.Sorted(slices.Values(members))) {
		return fmt.Errorf("%w: its members are %s, not %s", volume.ErrInvalid, strings.Join(have, ", "), strings.Join(members, ", "))
	}
	return nil
}

// DeleteGroup moves the group with its members to the trash. It is no error if it does
// not exist.
//
// Errors: volume.ErrInUse while a volume is being made from a member,
// volume.ErrInvalid when the members differ, those of share.Cache.
func (c *Copies) DeleteGroup(ctx context.Context, id volume.GroupID, members, mountOptions []string) error {
	t := c.cfg.Target(groupKey(id), mountOptions)
	err := c.groups.End(ctx, t.Key, id.Name)
	if err == nil {
		err = c.cfg.Exports.Do(ctx, t, func(ctx context.Context, x *session.Session) error { return c.deleteGroup(ctx, x, id, members) })
	}
	if err != nil {
		return fmt.Errorf("delete group snapshot %s: %w", id, err)
	}
	c.cfg.Kick(t)
	return nil
}

func (c *Copies) deleteGroup(ctx context.Context, x *session.Session, id volume.GroupID, members []string) error {
	rec, err := x.Cat.ReadGroup(id.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return x.Cat.EndStagings(x.Key.SubDir, "")
	case err != nil:
		return err
	case rec.ID != id.String():
		klog.FromContext(ctx).Info("Nothing to delete: the group snapshot is gone and another one has its name", logkeys.GroupSnapshotID, id.String(), logkeys.Owner, rec.ID)
		return nil
	}
	if err := sameMembers(rec, members); err != nil {
		return err
	}
	for _, m := range rec.Members {
		member, err := volume.ParseSnapshotID(m.ID)
		if err != nil {
			return fmt.Errorf("record of group snapshot %s: %w", rec.Name, err)
		}
		if err := c.Free(snapshotKey(member)); err != nil {
			return err
		}
	}
	if err := x.Step(ctx, "move group to trash"); err != nil {
		return err
	}
	if err := x.Cat.Discard(catalog.GroupPath(id.Name)); err != nil {
		return err
	}
	return x.Step(ctx, "answer")
}
