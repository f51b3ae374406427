// Package inventory lists what is on exports: volumes, snapshots, their health and
// their size, and free space.
package inventory

import (
	"context"

	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Config of an Inventory.
type Config struct {
	Exports *session.Exports
	// MountOptions for exports for which no others are known.
	MountOptions []string
	// Refused returns how many deleted volumes remain on an export because the server
	// refuses to remove something in them, and one such entry.
	Refused func(volume.Export) (deleted int64, entry string)
}

// Inventory of the exports that this process was configured with or has used.
type Inventory struct {
	cfg      Config
	known    known
	contents contents
	// listings are for List, checks for ListHealth; each has a lock of every export.
	listings, checks listings
}

// New returns an empty Inventory.
func New(cfg Config) *Inventory {
	return &Inventory{
		cfg:      cfg,
		known:    known{exports: map[volume.Export]*knownExport{}},
		contents: contents{exports: map[volume.Export]map[string]SnapshotContent{}},
		listings: listings{exports: map[volume.Export]*names{}},
		checks:   listings{exports: map[volume.Export]*names{}},
	}
}

// Target is a directory of an export as it is mounted, or else with the options the
// caller gives, or else those that this process has mounted the export with for a
// class, which its records have too, or else the configured ones.
func (i *Inventory) Target(k session.Key, options []string) session.Target {
	if len(options) == 0 {
		options = i.known.options(k.Export)
	}
	if len(options) == 0 {
		options = i.cfg.MountOptions
	}
	return session.Target{Key: k, MountOptions: options}
}

// Opened adds the target's export to the lists.
func (i *Inventory) Opened(t session.Target) { i.known.opened(t) }

// Saw notes a volume, by the path of its record.
func (i *Inventory) Saw(path string, id volume.ID) { i.known.saw(path, id) }

// Forget drops a volume that was deleted.
func (i *Inventory) Forget(id volume.ID) { i.known.forget(id) }

// SnapshotContents are those of the snapshots that this process has made, and of those
// on the exports of the inventory as of the last refresh.
func (i *Inventory) SnapshotContents() []SnapshotContent { return i.contents.all() }

// SawSnapshot notes a snapshot, by the path of its record.
func (i *Inventory) SawSnapshot(path string, s SnapshotContent) { i.contents.saw(path, s) }

// ForgetSnapshots drops the snapshots of an export that gone selects.
func (i *Inventory) ForgetSnapshots(export volume.Export, gone func(volume.SnapshotID) bool) {
	i.contents.forget(export, func(_ string, s SnapshotContent) bool { return gone(s.ID) })
}

// RefreshContents adds the snapshots that others have made on the session's export and
// drops those that they have deleted. It returns early, not complete, when waiting
// reports true.
func (i *Inventory) RefreshContents(ctx context.Context, x *session.Session, waiting func() bool) (complete bool, err error) {
	return i.contents.refresh(ctx, x.Key.Export, x.Records(), waiting)
}
