package copies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/deletion"
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
		rec, err := cat.ReadSnapshot(catalog.SnapshotPath(member))
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
	t := c.cfg.Target(session.GroupKey(id), mountOptions)
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
		if err := rec.CheckMembers(members); err != nil {
			return Group{}, err
		}
		return groupOf(x.Records(), rec)
	})
	if err != nil {
		return Group{}, fmt.Errorf("group snapshot %s: %w", id, err)
	}
	return found, nil
}

// DeleteGroup moves the group with its members to the trash. It is no error if it does
// not exist.
//
// Errors: volume.ErrInUse while a volume is being made from a member,
// volume.ErrInvalid when the members differ, those of share.Cache.
func (c *Copies) DeleteGroup(ctx context.Context, id volume.GroupID, members, mountOptions []string) error {
	t := c.cfg.Target(session.GroupKey(id), mountOptions)
	err := c.groups.End(ctx, t.Key, id.Name)
	if err == nil {
		err = c.cfg.Exports.Do(ctx, t, func(ctx context.Context, x *session.Session) error {
			return deletion.Group(ctx, x, id, members, c.Free)
		})
	}
	if err != nil {
		return fmt.Errorf("delete group snapshot %s: %w", id, err)
	}
	c.cfg.Kick(t)
	return nil
}
