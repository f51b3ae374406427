// Package store is the life of volumes on their exports: idempotent, and safe
// against kill -9 at any moment and against a second controller.
//
// A volume is its record (catalog) and its directory. Create writes the record
// first, Delete moves the directory away first, so that a directory of a live
// volume always has a record, and a directory without one holds nothing that a
// delete has given up: what is deleted is in the trash.
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
	// MountOptions for calls that do not know those of the volume.
	MountOptions []string
	// ReclaimWorkers is how many directories of a deleted volume are emptied at a time.
	ReclaimWorkers int
	// ReclaimRate is how many entries of deleted volumes are removed a second on
	// each export, 0 for as many as the server does.
	ReclaimRate int
	// CopyWorkers is how many files a clone, snapshot or restore copies at a time.
	CopyWorkers int
	// OnDelete and Mode are for volumes that do not say; empty for deleting and
	// for a mode that lets everybody write.
	OnDelete volume.OnDelete
	Mode     volume.Mode
	// ClusterID is noted in every new record; empty for a cluster that is not known.
	ClusterID string
	// Exports that lists cover from the start, and not only once a call has named
	// them.
	Exports []volume.Export
	// Metrics is optional.
	Metrics prometheus.Registerer
	// Step is optional. It is called before each step that changes the export, by
	// name, and in the end, for tests that let the process die there.
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
	// step is called between steps that change the export, by name. It ends a job
	// whose caller has gone; tests end it there as kill -9 would.
	step func(ctx context.Context, name string) error
}

// New checks the configuration. Close the store after use.
func New(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Shares == nil || cfg.ReclaimWorkers < 1 || cfg.ReclaimRate < 0 || cfg.CopyWorkers < 1 {
		return nil, errors.New("store: shares, at least one worker to reclaim and to copy and a rate that is not negative are needed")
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
	s.copies = copies.New(ctx, copies.Config{
		Exports: s.exports, Volumes: cfg.volumes(), Workers: cfg.CopyWorkers, Target: s.anyShare,
		Kick: func(t session.Target) { s.reclaim.Kick(t) },
	})
	s.inventory = inventory.New(inventory.Config{Exports: s.exports, MountOptions: cfg.MountOptions, Refused: s.refused})
	var err error
	s.reclaim, err = reclaim.New(ctx, reclaim.Config{
		Exports: s.exports, Workers: cfg.ReclaimWorkers, Rate: cfg.ReclaimRate, Upkeep: s.upkeep,
	})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
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

// Close stops reclaiming and waits until ctx ends for what is under way.
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
		return fmt.Errorf("store: operations are still under way: %w", ctx.Err())
	}
}

// Exists returns nil when the volume's directory is there, volume.ErrNotFound
// when it is not.
func (s *Store) Exists(ctx context.Context, id volume.ID, mountOptions []string) error {
	if err := volume.CheckSubDir(id.SubDir); err != nil {
		return err
	}
	t := s.anyShare(id.Export, id.SubDir, mountOptions)
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

// thisShare is a directory of the export mounted with these options.
func thisShare(export volume.Export, subDir string, options []string) session.Target {
	return session.Target{Key: session.Key{Export: export, SubDir: subDir}, MountOptions: options, Exact: true}
}

// anyShare is Inventory.Target.
func (s *Store) anyShare(export volume.Export, subDir string, options []string) session.Target {
	return s.inventory.Target(export, subDir, options)
}

// opened notes an export that is worked on.
func (s *Store) opened(t session.Target) {
	s.inventory.Opened(t)
	s.reclaim.Resume(t)
}

// Backlog of deleted volumes on every export that was scanned for them.
func (s *Store) Backlog() []reclaim.Backlog { return s.reclaim.Backlog() }
