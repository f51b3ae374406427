package store

import (
	"context"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// List is Inventory.List.
func (s *Store) List(ctx context.Context, limit int, token string) (inventory.Page, error) {
	return s.inventory.List(ctx, limit, token)
}

// Health is Inventory.Health.
func (s *Store) Health(ctx context.Context, id volume.ID, mountOptions []string) ([]inventory.Condition, error) {
	return s.inventory.Health(ctx, id, mountOptions)
}

// ListHealth is Inventory.ListHealth.
func (s *Store) ListHealth(ctx context.Context, limit int, token string) (inventory.HealthPage, error) {
	return s.inventory.ListHealth(ctx, limit, token)
}

// Capacity is Inventory.Capacity.
func (s *Store) Capacity(ctx context.Context, export volume.Export, mountOptions []string) (int64, error) {
	return s.inventory.Capacity(ctx, export, mountOptions)
}

// ListSnapshots is Inventory.ListSnapshots.
func (s *Store) ListSnapshots(ctx context.Context, q inventory.SnapshotQuery) (page []Snapshot, next string, err error) {
	return s.inventory.ListSnapshots(ctx, q)
}

// SnapshotContents is Inventory.SnapshotContents.
func (s *Store) SnapshotContents() []inventory.SnapshotContent { return s.inventory.SnapshotContents() }

// saw adds snapshots to the inventory.
func (s *Store) saw(snapshots ...Snapshot) {
	for _, snap := range snapshots {
		s.inventory.SawSnapshot(catalog.SnapshotPath(snap.ID), inventory.SnapshotContent{ID: snap.ID, Bytes: snap.Bytes, Entries: snap.Entries})
	}
}

// refused returns the deleted volumes of which the server refuses to remove something.
func (s *Store) refused(export volume.Export) (deleted int64, entry string) {
	late := s.reclaim.Late(export)
	return late.Refused, late.Left
}
