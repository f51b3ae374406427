package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// CreateRequest asks for a volume.
type CreateRequest struct {
	Name         string
	Params       volume.Params
	MountOptions []string
	Size         SizeRange
	// Source of the content; nil for an empty volume.
	Source *Source
	// Mutable parameters win over those of the class.
	Mutable volume.Mutable
}

// Created is a volume that exists.
type Created struct {
	ID volume.ID
	// Capacity in bytes, 0 when none was asked for.
	Capacity int64
}

// Create makes the volume, or finds it when an earlier call has made it. A
// directory of the volume's name that no live volume owns is adopted as it is,
// except for a volume with content.
//
// Errors: volume.ErrIncompatible when the volume exists with another size or
// other parameters, volume.ErrOwned, volume.ErrInvalid, those of share.Cache.
func (s *Store) Create(ctx context.Context, req CreateRequest) (Created, error) {
	want, err := s.newRecord(req, time.Now())
	if err != nil {
		return Created{}, err
	}
	if req.Source != nil {
		return s.createFrom(ctx, req, want)
	}
	export := req.Params.Export
	id, err := volume.ParseID(want.ID)
	if err != nil {
		return Created{}, err
	}
	made, err := session.Do(ctx, s.exports, thisShare(export, id.SubDir, req.MountOptions), func(ctx context.Context, x *session.Session) (Created, error) {
		c := &creation{Store: s, Session: x, req: req, want: want}
		if want.Shared == catalog.SharedVolume {
			return c.createShared(ctx, id)
		}
		return c.create(ctx)
	})
	if err != nil {
		return Created{}, fmt.Errorf("create volume %s on %s: %w", req.Name, export, err)
	}
	s.known.saw(want.SubDir, made.ID)
	return made, nil
}

func (s *Store) newRecord(req CreateRequest, now time.Time) (catalog.Record, error) {
	name, err := volume.DirName(req.Name)
	if err != nil {
		return catalog.Record{}, err
	}
	subDir := name
	if req.Params.SubDir != "" {
		if subDir, err = volume.ExpandSubDir(req.Params.SubDir, req.Params.Metadata); err != nil {
			return catalog.Record{}, err
		}
	}
	capacity, err := req.Size.choose()
	if err != nil {
		return catalog.Record{}, err
	}
	id := volume.ID{Export: req.Params.Export, SubDir: subDir, Name: name, OnDelete: s.onDelete(req)}
	want := catalog.Record{
		Name: req.Name, ID: id.String(), SubDir: subDir, Capacity: capacity,
		Parameters: req.Params.Shape(), Metadata: req.Params.Metadata, ClusterID: s.cfg.ClusterID,
		OnDelete: id.OnDelete, MountOptions: req.MountOptions, Created: now.UTC(), Source: req.Source.String(),
		Mode: s.mode(req), UID: req.Params.UID, GID: req.Params.GID,
	}
	switch {
	case req.Params.Shared:
		want.SubDir, want.Shared = sharedPlace(id), catalog.SharedVolume
		err = checkShared(req)
	case req.Params.Reuse:
		err = s.checkReuse(want)
	}
	return want, err
}

func (s *Store) onDelete(req CreateRequest) volume.OnDelete {
	if req.Params.Shared {
		return volume.OnDeleteRetain
	}
	return cmp.Or(req.Mutable.OnDelete, req.Params.OnDelete, s.cfg.OnDelete, volume.OnDeleteDelete)
}

// mode of the volume's directory, as far as something says so: that of a copy is
// otherwise its source's.
func (s *Store) mode(req CreateRequest) volume.Mode {
	said := cmp.Or(req.Mutable.Mode, req.Params.Mode)
	if req.Source == nil {
		return cmp.Or(said, s.cfg.Mode)
	}
	return said
}

// creation of a volume on an export. What is wanted is the record that is made, if
// there is none of the same request.
type creation struct {
	*Store
	*session.Session
	req  CreateRequest
	want catalog.Record
}

func (c *creation) create(ctx context.Context) (Created, error) {
	there, info, draft, err := c.lookAndDraft(ctx)
	if err != nil {
		return Created{}, err
	}
	c.want.Adopted = there
	if err := c.takeOver(ctx); err != nil {
		return Created{}, err
	}
	rec, isNew, err := c.firstClaim(ctx, draft)
	if err != nil {
		return Created{}, err
	}
	id, err := volume.ParseID(rec.ID)
	if err != nil {
		return Created{}, fmt.Errorf("record of %s: %w", rec.SubDir, err)
	}
	if err := c.confirm(ctx, rec, id, isNew, there); err != nil {
		return Created{}, err
	}
	made := Created{ID: id, Capacity: rec.Capacity}
	half := there && halfMade(rec, info)
	if there && !half {
		return made, c.notRetained(rec)
	}
	return made, c.complete(ctx, rec, id, isNew, half)
}

// complete makes the directory of a record, or what is left to do of one that is half
// made.
func (c *creation) complete(ctx context.Context, rec catalog.Record, id volume.ID, isNew, half bool) error {
	made, err := completeDirectory(ctx, c.Session, rec, half)
	if err != nil {
		incomplete := half || errors.Is(err, volume.ErrRefused)
		if (isNew || incomplete && rec.Shared == "") && ctx.Err() == nil {
			// The caller may give up for good: leave no claim without a directory.
			err = errors.Join(err, unclaim(c.Session, rec, id))
		}
		return err
	}
	switch {
	case !isNew:
		return c.keep(ctx, rec, id)
	case !made:
		return c.cameBetween(ctx, rec, id)
	}
	return nil
}

// lookAndDraft looks for the directory. Since there is probably none, it writes the
// record of a new one meanwhile, where the volume's name says where that belongs.
func (c *creation) lookAndDraft(ctx context.Context) (there bool, info fs.FileInfo, draft *catalog.Draft, err error) {
	var draftErr error
	drafted := make(chan struct{})
	if namedAsItsDirectory(c.want) && !c.req.Params.Reuse {
		if err := c.Step(ctx, "write record"); err != nil {
			return false, nil, nil, err
		}
		go func() {
			defer close(drafted)
			draftErr = session.Recover(ctx, func() (err error) {
				draft, err = c.Cat.Draft(c.want)
				return err
			})
		}()
	} else {
		close(drafted)
	}
	there, info, err = fsat.Directory(c.Root, c.want.SubDir)
	<-drafted
	if err == nil && !there {
		return false, nil, draft, draftErr
	}
	if draft != nil {
		err = errors.Join(err, c.Cat.Drop(draft))
	}
	if err == nil { // mkdir(2) asks the server, what was looked at so far does not
		there, info, err = fsat.DirectoryNow(c.Root, c.want.SubDir)
	}
	return there, info, nil, err
}

// keep sees to it that a directory just made has its record: whoever made that may
// have failed and taken it back meanwhile. A delete has done the same with the
// directory before it; then there must not be a record either.
func (c *creation) keep(ctx context.Context, rec catalog.Record, id volume.ID) error {
	c.want = rec
	if _, isNew, err := c.claim(ctx); err != nil || !isNew {
		return err
	}
	return c.stillThere(rec, id)
}

// stillThere takes a record back that was made for a directory which another
// controller was deleting: it takes the directory first and the record last, which
// was gone just now.
func (c *creation) stillThere(rec catalog.Record, id volume.ID) error {
	still, _, err := fsat.DirectoryNow(c.Root, rec.SubDir)
	if err == nil && still {
		return nil
	}
	err = cmp.Or(err, fmt.Errorf("%w: the directory was deleted at the same time", volume.ErrInProgress))
	return errors.Join(err, unclaim(c.Session, rec, id))
}

// confirm looks, now that there is the record, whether it may stay.
func (c *creation) confirm(ctx context.Context, rec catalog.Record, id volume.ID, isNew, there bool) error {
	if isNew && there {
		if err := c.stillThere(rec, id); err != nil {
			return err
		}
	}
	if !isNew && there && !rec.Adopted || rec.Shared == catalog.SharedDirectory {
		return nil
	}
	if !isNew && rec.Adopted && rec.ReusedFrom == "" {
		if err := c.notPromised(rec); err != nil {
			return err
		}
	}
	if err := onlyOne(ctx, c.Session, rec); err != nil {
		return errors.Join(err, giveWay(ctx, c.Session, rec, id, isNew, err))
	}
	return nil
}

// unclaim takes back what was made for a volume whose directory cannot be made.
func unclaim(x *session.Session, rec catalog.Record, id volume.ID) error {
	if there, _, err := fsat.Directory(x.Root, rec.SubDir); there || err != nil {
		return err // another controller has made it
	}
	return errors.Join(fsat.Prune(x.Root, rec.SubDir), forget(x.Cat, rec, id))
}
