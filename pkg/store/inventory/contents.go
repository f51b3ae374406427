package inventory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/copies"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// SnapshotContent is how much a snapshot contains.
type SnapshotContent struct {
	ID             volume.SnapshotID
	Bytes, Entries int64
}

// contents of snapshots, by export and path.
type contents struct {
	mu      sync.Mutex
	exports map[volume.Export]map[string]SnapshotContent
}

// SnapshotContents are those of the snapshots that this process has made, and of those
// on the exports of the inventory as of the last refresh.
func (c *contents) SnapshotContents() []SnapshotContent {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []SnapshotContent
	for _, paths := range c.exports {
		list = slices.AppendSeq(list, maps.Values(paths))
	}
	return list
}

// on returns a copy of what is known of an export.
func (c *contents) on(export volume.Export) map[string]SnapshotContent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.exports[export])
}

// SawSnapshot notes a snapshot, by the path of its record.
func (c *contents) SawSnapshot(path string, s SnapshotContent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	paths := c.exports[s.ID.Export]
	if paths == nil {
		paths = map[string]SnapshotContent{}
		c.exports[s.ID.Export] = paths
	}
	paths[path] = s
}

func (c *contents) forget(export volume.Export, gone func(path string, s SnapshotContent) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.exports[export], gone)
}

// ForgetSnapshots drops the snapshots of an export that gone selects.
func (c *contents) ForgetSnapshots(export volume.Export, gone func(volume.SnapshotID) bool) {
	c.forget(export, func(_ string, s SnapshotContent) bool { return gone(s.ID) })
}

// RefreshContents adds the snapshots that others have made on the session's export and
// drops those that they have deleted. Records do not change, so only new ones are read. It
// returns early, not complete, when waiting reports true.
func (c *contents) RefreshContents(ctx context.Context, x *session.Session, waiting func() bool) (complete bool, err error) {
	export, records := x.Key.Export, x.Records()
	before, found := c.on(export), map[string]bool{}
	for path, err := range records.SnapshotPaths("") {
		if err := errors.Join(err, ctx.Err()); err != nil {
			return false, fmt.Errorf("refresh snapshot contents: %w", err)
		}
		if _, ok := before[path]; ok {
			found[path] = true
			continue
		}
		if waiting() {
			return false, nil
		}
		if err := c.read(records, path); err != nil {
			return false, fmt.Errorf("refresh snapshot contents: %w", err)
		}
	}
	c.forget(export, func(path string, _ SnapshotContent) bool {
		_, known := before[path]
		return known && !found[path]
	})
	return true, nil
}

func (c *contents) read(records session.Records, path string) error {
	snap, err := readSnapshot(records, path)
	if _, broken := errors.AsType[*catalog.BrokenError](err); broken || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		c.SawSnapshot(path, SnapshotContent{snap.ID, snap.Bytes, snap.Entries})
	}
	return err
}

func readSnapshot(records session.Records, path string) (copies.Snapshot, error) {
	rec, err := records.ReadSnapshot(path)
	if err != nil {
		return copies.Snapshot{}, err
	}
	return copies.SnapshotOf(rec)
}
