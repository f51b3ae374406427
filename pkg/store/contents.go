package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// SnapshotContent is how much a snapshot holds.
type SnapshotContent struct {
	ID             volume.SnapshotID
	Bytes, Entries int64
}

// SnapshotContents are those of all snapshots that are known to this process: those
// that it has made, and those on the exports it has used, as of the last upkeep.
func (s *Store) SnapshotContents() []SnapshotContent { return s.contents.all() }

// contents of snapshots, by export and place.
type contents struct {
	mu sync.Mutex
	by map[volume.Export]map[string]SnapshotContent
}

func (c *contents) all() []SnapshotContent {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []SnapshotContent
	for _, places := range c.by {
		list = slices.AppendSeq(list, maps.Values(places))
	}
	return list
}

func (c *contents) saw(snapshots ...Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range snapshots {
		places := c.by[s.ID.Export]
		if places == nil {
			places = map[string]SnapshotContent{}
			if c.by == nil {
				c.by = map[volume.Export]map[string]SnapshotContent{}
			}
			c.by[s.ID.Export] = places
		}
		places[snapshotPlace(s.ID)] = SnapshotContent{s.ID, s.Bytes, s.Entries}
	}
}

func (c *contents) forget(export volume.Export, gone func(SnapshotContent) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.by[export], func(_ string, s SnapshotContent) bool { return gone(s) })
}

// on returns a copy of what is known of an export.
func (c *contents) on(export volume.Export) map[string]SnapshotContent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.by[export])
}

// refresh takes in the snapshots that others have made and drops those that they have
// deleted. Records do not change, so only those that are new are read. It is not whole
// when it gave way to what was waiting.
func (c *contents) refresh(ctx context.Context, export volume.Export, cat *catalog.Catalog, waiting func() bool) (whole bool, err error) {
	before, there := c.on(export), map[volume.SnapshotID]bool{}
	for place, err := range cat.SnapshotPaths("") {
		if err := errors.Join(err, ctx.Err()); err != nil {
			return false, fmt.Errorf("sizes of snapshots: %w", err)
		}
		if known, ok := before[place]; ok {
			there[known.ID] = true
			continue
		}
		if waiting() {
			return false, nil
		}
		if err := c.read(cat, place); err != nil {
			return false, fmt.Errorf("sizes of snapshots: %w", err)
		}
	}
	c.forget(export, func(s SnapshotContent) bool {
		_, known := before[snapshotPlace(s.ID)]
		return known && !there[s.ID]
	})
	return true, nil
}

func (c *contents) read(cat *catalog.Catalog, place string) error {
	snap, err := readSnapshot(cat, place)
	if _, broken := errors.AsType[*catalog.BrokenError](err); broken || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		c.saw(snap)
	}
	return err
}
