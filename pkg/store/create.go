package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/share"
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
	var made Created
	err = s.withVolume(ctx, key{export, id.SubDir}, s.thisShare(export, req.MountOptions), func(ctx context.Context, h *share.Handle) error {
		return withCatalog(h, func(cat *catalog.Catalog) (err error) {
			c := &creation{Store: s, root: h.Root(), cat: cat, req: req, want: want}
			if want.Shared == catalog.SharedVolume {
				made, err = c.createShared(ctx, id)
			} else {
				made, err = c.create(ctx)
			}
			return err
		})
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
	root *os.Root
	cat  *catalog.Catalog
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
	made, err := c.completeDirectory(ctx, c.root, rec, half)
	if err != nil {
		incomplete := half || errors.Is(err, volume.ErrRefused)
		if (isNew || incomplete && rec.Shared == "") && ctx.Err() == nil {
			// The caller may give up for good: leave no claim without a directory.
			err = errors.Join(err, unclaim(c.root, c.cat, rec, id))
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
		if err := c.step(ctx, "write record"); err != nil {
			return false, nil, nil, err
		}
		go func() {
			defer close(drafted)
			draftErr = unpanicked(ctx, func() (err error) {
				draft, err = c.cat.Draft(c.want)
				return err
			})
		}()
	} else {
		close(drafted)
	}
	there, info, err = directoryThere(c.root, c.want.SubDir)
	<-drafted
	if err == nil && !there {
		return false, nil, draft, draftErr
	}
	if draft != nil {
		err = errors.Join(err, c.cat.Drop(draft))
	}
	if err == nil { // mkdir(2) asks the server, what was looked at so far does not
		there, info, err = directoryNow(c.root, c.want.SubDir)
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
	still, _, err := directoryNow(c.root, rec.SubDir)
	if err == nil && still {
		return nil
	}
	err = cmp.Or(err, fmt.Errorf("%w: the directory was deleted at the same time", volume.ErrInProgress))
	return errors.Join(err, unclaim(c.root, c.cat, rec, id))
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
	if err := c.onlyOne(ctx, c.root, c.cat, rec); err != nil {
		return errors.Join(err, giveWay(ctx, c.root, c.cat, rec, id, isNew, err))
	}
	return nil
}

// unclaim takes back what was made for a volume whose directory cannot be made.
func unclaim(root *os.Root, cat *catalog.Catalog, rec catalog.Record, id volume.ID) error {
	if there, _, err := directoryThere(root, rec.SubDir); there || err != nil {
		return err // another controller has made it
	}
	return errors.Join(fsat.Prune(root, rec.SubDir), forget(cat, rec, id))
}

func directoryThere(root *os.Root, subDir string) (bool, fs.FileInfo, error) {
	info, err := fsat.LstatBelow(root, subDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil, nil
	case err != nil:
		return false, nil, err
	case !info.IsDir():
		return false, nil, fmt.Errorf("%w: %s is there and is not a directory", volume.ErrOwned, subDir)
	}
	return true, info, nil
}
