package store

import (
	"context"

	"github.com/nfs-csi/nfs-csi/pkg/store/copies"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// What copies are asked for, and what they make.
type (
	// SnapshotRequest asks for a snapshot.
	SnapshotRequest = copies.SnapshotRequest
	// Snapshot is a complete snapshot.
	Snapshot = copies.Snapshot
	// GroupRequest asks for a group snapshot.
	GroupRequest = copies.GroupRequest
	// Handle is a volume ID and the caller's spelling of it.
	Handle = copies.Handle
	// Group is a complete group snapshot.
	Group = copies.Group
)

// CreateSnapshot is copies.CreateSnapshot.
func (s *Store) CreateSnapshot(ctx context.Context, req SnapshotRequest) (Snapshot, error) {
	made, err := s.copies.CreateSnapshot(ctx, req)
	if err == nil {
		s.saw(made)
	}
	return made, err
}

// DeleteSnapshot is copies.DeleteSnapshot.
func (s *Store) DeleteSnapshot(ctx context.Context, id volume.SnapshotID, mountOptions []string) error {
	err := s.copies.DeleteSnapshot(ctx, id, mountOptions)
	if err == nil {
		s.inventory.ForgetSnapshots(id.Export, func(gone volume.SnapshotID) bool { return gone == id })
	}
	return err
}

// GetSnapshot is copies.GetSnapshot.
func (s *Store) GetSnapshot(ctx context.Context, id volume.SnapshotID, mountOptions []string) (Snapshot, error) {
	return s.copies.GetSnapshot(ctx, id, mountOptions)
}

// CreateGroup is copies.CreateGroup.
func (s *Store) CreateGroup(ctx context.Context, req GroupRequest) (Group, error) {
	made, err := s.copies.CreateGroup(ctx, req)
	if err == nil {
		s.saw(made.Members...)
	}
	return made, err
}

// DeleteGroup is copies.DeleteGroup.
func (s *Store) DeleteGroup(ctx context.Context, id volume.GroupID, members, mountOptions []string) error {
	err := s.copies.DeleteGroup(ctx, id, members, mountOptions)
	if err == nil {
		s.inventory.ForgetSnapshots(id.Export, func(gone volume.SnapshotID) bool { return gone.Group == id.Name })
	}
	return err
}

// GetGroup is copies.GetGroup.
func (s *Store) GetGroup(ctx context.Context, id volume.GroupID, members, mountOptions []string) (Group, error) {
	return s.copies.GetGroup(ctx, id, members, mountOptions)
}
