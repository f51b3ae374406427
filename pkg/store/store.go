// Package store manages the life cycle of volumes on their exports. All operations are
// idempotent, and safe against kill -9 at any moment and a second controller.
//
// A volume is a record (catalog) and a directory. Create writes the record first, Delete
// quarantines the directory first. Hence a live volume's directory always has a record,
// and a directory without one holds no deleted content: that is in the trash.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/copies"
	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/store/reclaim"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Config of a Store.
type Config struct {
	Shares session.Shares
	// MountOptions for calls that do not have the volume's own.
	MountOptions []string
	// ReclaimWorkers empty directories of a deleted volume in parallel.
	ReclaimWorkers int
	// ReclaimRate limits the removed entries per second and export; 0 for no limit.
	ReclaimRate int
	// CopyWorkers copy the files of a clone, snapshot or restore in parallel.
	CopyWorkers int
	// OnDelete and Mode are the defaults for volumes; empty for delete and a mode that is
	// writable for everyone.
	OnDelete volume.OnDelete
	Mode     volume.Mode
	// ClusterID is written to every new record; empty if unknown.
	ClusterID string
	// Exports that lists cover before a call has named them.
	Exports []volume.Export
	// Metrics is optional.
	Metrics prometheus.Registerer
	// Step is optional. It is called with the name of each step that changes the export,
	// before it, and after the last. Tests kill the process there.
	Step func(name string)
}

func (c Config) volumes() volumes.Config {
	return volumes.Config{OnDelete: c.OnDelete, Mode: c.Mode, ClusterID: c.ClusterID}
}

// Store of volumes.
type Store struct {
	cfg       Config
	exports   *session.Exports
	reclaim   *reclaim.Reclaimer
	copies    *copies.Copies
	inventory *inventory.Inventory
	upkeeps   upkeeps
	// step is called before each step that changes the export. It ends jobs whose context
	// has ended.
	step func(ctx context.Context, name string) error
}

// New checks the configuration. Close the store after use.
func New(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Shares == nil || cfg.ReclaimWorkers < 1 || cfg.ReclaimRate < 0 || cfg.CopyWorkers < 1 {
		return nil, errors.New("store: Shares, at least one ReclaimWorkers and CopyWorkers, and a ReclaimRate of at least 0 are required")
	}
	s := &Store{
		cfg: cfg,
		step: func(ctx context.Context, name string) error {
			if cfg.Step != nil {
				cfg.Step(name)
			}
			return ctx.Err()
		},
	}
	s.exports = session.New(session.Config{
		Shares: cfg.Shares, Opened: s.opened,
		Step: func(ctx context.Context, name string) error { return s.step(ctx, name) },
	})
	s.inventory = inventory.New(inventory.Config{Exports: s.exports, MountOptions: cfg.MountOptions, Refused: s.refused})
	var err error
	s.reclaim, err = reclaim.New(ctx, reclaim.Config{
		Exports: s.exports, Workers: cfg.ReclaimWorkers, Rate: cfg.ReclaimRate, Upkeep: s.upkeep,
	})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s.copies = copies.New(ctx, copies.Config{
		Exports: s.exports, Volumes: cfg.volumes(), Workers: cfg.CopyWorkers, Target: s.inventory.Target,
		Kick: func(t session.Target) { s.reclaim.Kick(t) },
	})
	for _, export := range cfg.Exports {
		s.opened(session.Target{Key: session.Key{Export: export}, MountOptions: cfg.MountOptions})
	}
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(s.copies.Collector()); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
	}
	return s, nil
}

// Close stops background work and waits for running operations until ctx ends.
func (s *Store) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		s.copies.Close()
		s.reclaim.Close()
		s.exports.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("store: operations are still running: %w", ctx.Err())
	}
}

// Exists returns volume.ErrNotFound if the volume's directory does not exist.
func (s *Store) Exists(ctx context.Context, id volume.ID, mountOptions []string) error {
	if err := volume.CheckSubDir(id.SubDir); err != nil {
		return err
	}
	t := s.inventory.Target(session.Key{Export: id.Export, SubDir: id.SubDir}, mountOptions)
	return s.exports.On(ctx, t, func(_ context.Context, x *session.Session) error {
		info, err := fsat.LstatBelow(x.Root, id.SubDir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: %s", volume.ErrNotFound, t.Key)
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%w: %s is not a directory", volume.ErrNotFound, t.Key)
		}
		return nil
	})
}

// opened adds the export to the inventory and resumes its reclaim.
func (s *Store) opened(t session.Target) {
	s.inventory.Opened(t)
	s.reclaim.Resume(t)
}

// Backlog of deleted volumes on each export scanned so far.
func (s *Store) Backlog() []reclaim.Backlog { return s.reclaim.Backlog() }
