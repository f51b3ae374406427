// Package inventory lists what is on exports: volumes, snapshots, their health and
// their size, and free space.
package inventory

import (
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
	known
	contents
	cfg Config
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
		options = i.options(k.Export)
	}
	if len(options) == 0 {
		options = i.cfg.MountOptions
	}
	return session.Target{Key: k, MountOptions: options}
}
