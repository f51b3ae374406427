package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// GroupRequest asks for a group snapshot.
type GroupRequest struct {
	Name    string
	Sources []Handle
	// Export to keep it on; nil for that of the first source by ID.
	Export       *volume.Export
	MountOptions []string
}

// Handle is a volume ID, and the text of it that the caller knows the volume by.
type Handle struct {
	volume.ID
	Text string
}

// Group is a group snapshot. All of it is on one export, also where its sources
// are on several, so that one rename makes it and one ends it.
type Group struct {
	ID      volume.GroupID
	Members []Snapshot
	Created time.Time
}

func groupKey(id volume.GroupID) key {
	return key{id.Export, path.Join(volume.MetaDir, catalog.GroupPath(id.Name))}
}

// CreateGroup makes snapshots of several volumes, all or none, or finds those that
// an earlier call has made.
//
// Errors: volume.ErrSnapshotDiffers when there is a group of this name of other
// volumes, volume.ErrInvalid, volume.ErrNotFound, volume.ErrInProgress, those of
// share.Cache.
func (s *Store) CreateGroup(ctx context.Context, req GroupRequest) (Group, error) {
	dir, err := volume.DirName(req.Name)
	if err == nil {
		req.Sources, err = inOrder(req.Sources)
	}
	if err != nil {
		return Group{}, fmt.Errorf("create group snapshot %s: %w", req.Name, err)
	}
	id := volume.GroupID{Export: req.Sources[0].Export, Name: dir}
	if req.Export != nil {
		id.Export = *req.Export
	}
	k, options := groupKey(id), s.options(req.MountOptions)
	want := catalog.Record{Name: req.Name, SubDir: dir, Source: sourcesOf(req.Sources)}
	made, err := runJob(ctx, s, k, dir, want, func(ctx context.Context, p *tree.Progress) (made Group, err error) {
		err = s.alone(ctx, k, s.anyShare(id.Export, options), func(ctx context.Context, h *share.Handle) error {
			s.reclaim.resume(id.Export, options)
			return withCatalog(h, func(cat *catalog.Catalog) (err error) {
				made, err = s.createGroup(ctx, h, cat, id, req, p)
				return err
			})
		})
		s.reclaim.kick(id.Export, options)
		return made, err
	})
	if err != nil {
		return Group{}, fmt.Errorf("create group snapshot %s: %w", req.Name, err)
	}
	return made, nil
}

// inOrder sorts the sources: the same ones are the same request, in any order and
// in any form of their IDs.
func inOrder(sources []Handle) ([]Handle, error) {
	if len(sources) == 0 {
		return nil, fmt.Errorf("%w: no source volumes", volume.ErrInvalid)
	}
	sources = slices.SortedFunc(slices.Values(sources), func(a, b Handle) int { return strings.Compare(a.source(), b.source()) })
	for i, h := range sources[1:] {
		if sameVolume(h.ID, sources[i].ID) {
			return nil, fmt.Errorf("%w: source volume %s is given more than once", volume.ErrInvalid, h.Text)
		}
	}
	return sources, nil
}

// source names the volume in the same way whatever form of its ID was given.
func (h Handle) source() string { return (&Source{Volume: &h.ID}).String() }

func sourcesOf(list []Handle) string {
	var names []string
	for _, h := range list {
		names = append(names, h.source())
	}
	return strings.Join(names, ", ")
}

func (s *Store) createGroup(ctx context.Context, h *share.Handle, cat *catalog.Catalog, id volume.GroupID, req GroupRequest, p *tree.Progress) (Group, error) {
	if have, err := sameGroup(cat, id, req.Sources); !errors.Is(err, fs.ErrNotExist) {
		return have, err
	}
	var from []*content
	defer func() {
		for _, c := range from {
			c.close()
		}
	}()
	// All of them before the first is copied: one that is not there fails at once,
	// and none is deleted meanwhile.
	for _, source := range req.Sources {
		c, err := s.openSource(ctx, &Source{Volume: &source.ID}, h, source.Export == id.Export)
		if err != nil {
			return Group{}, err
		}
		from = append(from, c)
	}
	op, err := s.beginOperation(ctx, cat, groupKey(id))
	if err != nil {
		return Group{}, err
	}
	if err := s.takeGroup(ctx, op, from, id, req, p); err != nil {
		if ctx.Err() == nil {
			err = errors.Join(err, op.end())
		}
		return Group{}, err
	}
	return sameGroup(cat, id, req.Sources)
}

func (s *Store) takeGroup(ctx context.Context, op *operation, from []*content, id volume.GroupID, req GroupRequest, p *tree.Progress) error {
	rec := catalog.Group{Name: req.Name, ID: id.String(), Created: time.Now().UTC()}
	if err := s.fillGroup(ctx, op, from, req, id, &rec, p); err != nil {
		if op.taken(err) {
			err = errTaken
		}
		return err
	}
	if err := op.cat.WriteGroup(op.name, rec); err != nil {
		return err
	}
	if err := s.step(ctx, "put group in its place"); err != nil {
		return err
	}
	err := op.place(catalog.GroupPath(id.Name))
	if errors.Is(err, errFaster) {
		err = op.end()
	}
	if err != nil {
		return err
	}
	return s.step(ctx, "answer")
}

// fillGroup copies one member after the other and notes them in the group's
// record.
func (s *Store) fillGroup(ctx context.Context, op *operation, from []*content, req GroupRequest, id volume.GroupID, rec *catalog.Group, p *tree.Progress) error {
	defer op.keepAlive(ctx)()
	for i, source := range req.Sources {
		member := volume.SnapshotID{Export: id.Export, Group: id.Name, Name: strconv.Itoa(i + 1), Source: source.Name}
		snap := catalog.Snapshot{Name: req.Name, ID: member.String(), SourceID: source.Text, Created: rec.Created}
		if err := s.step(ctx, "copy member"); err != nil {
			return err
		}
		data := path.Join(member.Name, catalog.SnapshotData)
		// Not MkdirAll: an operation that was ended must not come back without the
		// members it had.
		for _, dir := range []string{member.Name, data} {
			if err := op.cat.Meta().Mkdir(path.Join(op.name, dir), 0o700); err != nil {
				return err
			}
		}
		part := p.Part(i+1, len(req.Sources))
		if err := op.copyInto(ctx, data, from[i], s.cfg.CopyWorkers, part); err != nil {
			return fmt.Errorf("volume %s: %w", source.Text, err)
		}
		snap.Bytes, snap.Entries = part.Bytes(), part.Entries()
		if err := op.cat.WriteSnapshot(path.Join(op.name, member.Name), snap); err != nil {
			return err
		}
		tellDevices(ctx, snap.ID, part)
		rec.Members = append(rec.Members, catalog.Member{ID: snap.ID, SourceID: snap.SourceID})
	}
	return nil
}
