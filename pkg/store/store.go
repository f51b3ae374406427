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
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/keyed"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Shares is what the store needs of share.Cache.
type Shares interface {
	Acquire(ctx context.Context, export volume.Export, options []string) (*share.Handle, error)
	AcquireAny(ctx context.Context, export volume.Export, fallback []string) (*share.Handle, error)
	Answers(ctx context.Context, export volume.Export) error
}

// Config of a Store.
type Config struct {
	Shares Shares
	// MountOptions for calls that do not know those of the volume.
	MountOptions []string
	// ReclaimWorkers is how many entries of deleted volumes are removed at a time.
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

// Store of volumes.
type Store struct {
	cfg     Config
	locks   keyed.Limiter[key]
	reclaim *reclaimer
	copies  *jobs
	// calls and slots bound what a server that dies holds up.
	calls    *keyed.Limiter[string] // by server
	slots    *slots
	jobs     sync.WaitGroup
	known    known
	upkeeps  upkeeps
	contents contents
	// listings are for List, checks for ListHealth; each has a lock of every export.
	listings, checks listings
	// step is called between steps that change the export, by name. It ends a job
	// whose caller has gone; tests end it there as kill -9 would.
	step func(ctx context.Context, name string) error
}

// key of the lock of a volume: the same in every call, from whatever the call
// knows the volume by.
type key struct {
	export volume.Export
	subDir string
}

func (k key) String() string { return k.export.Source(k.subDir) }

// New checks the configuration. Close the store after use.
func New(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Shares == nil || cfg.ReclaimWorkers < 1 || cfg.ReclaimRate < 0 || cfg.CopyWorkers < 1 {
		return nil, errors.New("store: shares, at least one worker to reclaim and to copy and a rate that is not negative are needed")
	}
	s := &Store{
		cfg:     cfg,
		reclaim: newReclaimer(ctx, cfg.Shares, cfg.ReclaimWorkers, cfg.ReclaimRate),
		copies:  newJobs(ctx),
		calls:   keyed.NewLimiter[string](callsAtATime),
		slots:   newSlots(),
		step: func(ctx context.Context, name string) error {
			if cfg.Step != nil {
				cfg.Step(name)
			}
			return ctx.Err()
		},
	}
	s.reclaim.upkeep = s.upkeep
	for _, export := range cfg.Exports {
		s.known.add(export, cfg.MountOptions)
		s.reclaim.resume(export, cfg.MountOptions)
	}
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(copyCollector{s}); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
	}
	return s, nil
}

// Close stops reclaiming and waits until ctx ends for what is under way.
func (s *Store) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		s.copies.close()
		s.reclaim.close()
		s.jobs.Wait()
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
	k := key{id.Export, id.SubDir}
	return s.withVolume(ctx, k, s.anyShare(id.Export, s.options(id.Export, mountOptions)), func(_ context.Context, h *share.Handle) error {
		info, err := fsat.LstatBelow(h.Root(), id.SubDir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: %s", volume.ErrNotFound, k)
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%w: %s is not a directory", volume.ErrNotFound, k)
		}
		return nil
	})
}
