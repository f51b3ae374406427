package copies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/copyjob"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// groupCopy makes a group snapshot.
type groupCopy struct {
	copies  *Copies
	id      volume.GroupID
	req     GroupRequest
	from    []*content
	began   []time.Time // by the clock of each source's server
	staging *staging
}

func (c *Copies) createGroup(ctx context.Context, x *session.Session, id volume.GroupID, req GroupRequest, t copyjob.Task) (Group, error) {
	if have, err := sameGroup(x.Cat, id, req.Sources); !errors.Is(err, fs.ErrNotExist) {
		return have, err
	}
	g := &groupCopy{copies: c, id: id, req: req}
	defer g.close()
	if err := g.open(ctx, x); err != nil {
		return Group{}, err
	}
	st, err := newStaging(ctx, x)
	if err != nil {
		return Group{}, err
	}
	g.staging = st
	if err := g.make(ctx, t); err != nil {
		if ctx.Err() == nil {
			err = errors.Join(err, st.end(ctx))
		}
		return Group{}, err
	}
	return sameGroup(x.Cat, id, req.Sources)
}

func (g *groupCopy) close() {
	for _, c := range g.from {
		c.close()
	}
}

// open opens all sources before the first is copied: a missing one fails at once, and
// none is deleted meanwhile.
func (g *groupCopy) open(ctx context.Context, x *session.Session) error {
	for _, source := range g.req.Sources {
		c, err := g.copies.openSource(ctx, &volumes.Source{Volume: &source.ID}, x)
		if err != nil {
			return err
		}
		g.from = append(g.from, c)
	}
	if g.req.AllowWrites {
		return nil
	}
	for _, c := range g.from {
		now, err := c.clock(ctx)
		if err != nil {
			return err
		}
		g.began = append(g.began, now)
	}
	return nil
}

func (g *groupCopy) make(ctx context.Context, t copyjob.Task) error {
	rec := catalog.Group{Name: g.req.Name, ID: g.id.String(), Created: time.Now().UTC()}
	if err := g.fill(ctx, &rec, t); err != nil {
		return g.staging.explain(err)
	}
	if err := g.staging.Cat.WriteGroup(g.staging.name, rec); err != nil {
		return err
	}
	return g.staging.place(ctx, "move group into place", catalog.GroupPath(g.id.Name))
}

// fill copies the members in turn and adds them to the group's record.
func (g *groupCopy) fill(ctx context.Context, rec *catalog.Group, t copyjob.Task) error {
	defer g.staging.heartbeat(ctx)()
	for i, source := range g.req.Sources {
		member := volume.SnapshotID{Export: g.id.Export, Group: g.id.Name, Name: strconv.Itoa(i + 1), Source: source.Name}
		snap := catalog.Snapshot{Name: g.req.Name, ID: member.String(), SourceID: source.Text, Capacity: g.from[i].capacity, Created: rec.Created}
		if err := g.member(ctx, i, member.Name, &snap, t.Part(i+1, len(g.req.Sources))); err != nil {
			return fmt.Errorf("volume %s: %w", source.Text, err)
		}
		rec.Members = append(rec.Members, catalog.Member{ID: snap.ID, SourceID: snap.SourceID})
	}
	return g.unchanged(ctx)
}

func (g *groupCopy) member(ctx context.Context, i int, name string, rec *catalog.Snapshot, t copyjob.Task) error {
	if err := g.staging.Step(ctx, "copy member"); err != nil {
		return err
	}
	data := path.Join(name, catalog.SnapshotData)
	// Not MkdirAll: a staging directory that was ended must not reappear without the
	// members it had.
	for _, dir := range []string{name, data} {
		if err := g.staging.Cat.Meta().Mkdir(path.Join(g.staging.name, dir), 0o700); err != nil {
			return err
		}
	}
	if err := g.staging.copyInto(ctx, data, g.from[i], g.copies.cfg.Workers, t); err != nil {
		return err
	}
	rec.Bytes, rec.Entries = t.Bytes(), t.Entries()
	logCopied(ctx, *rec, t.Progress)
	return g.staging.Cat.WriteSnapshot(path.Join(g.staging.name, name), *rec)
}

// unchanged returns volume.ErrWritten when a source has changed since the copy of the
// first one started. If none has, the members show all sources as of that time.
func (g *groupCopy) unchanged(ctx context.Context) error {
	for i, began := range g.began {
		source := g.req.Sources[i].Text
		now, err := g.from[i].clock(ctx)
		if err != nil {
			return err
		}
		if now.Before(began) {
			return fmt.Errorf("volume %s: %w, as far as can be told: the server's clock was set back", source, volume.ErrWritten)
		}
		changed, err := tree.ChangedSince(ctx, g.from[i].root, began, g.copies.cfg.Workers)
		if err != nil {
			return fmt.Errorf("volume %s: %w", source, err)
		}
		if changed != "" {
			return fmt.Errorf("volume %s: %w: %s", source, volume.ErrWritten, changed)
		}
	}
	return nil
}
