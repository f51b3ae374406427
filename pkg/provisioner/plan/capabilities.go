package plan

import "github.com/container-storage-interface/spec/lib/go/csi"

// Capabilities are what a CSI driver declares.
type Capabilities struct {
	// DriverName is the name in a StorageClass's provisioner.
	DriverName string
	// Volumes is CREATE_DELETE_VOLUME.
	Volumes bool
	// Topology is VOLUME_ACCESSIBILITY_CONSTRAINTS: not every node can reach every
	// volume.
	Topology bool
	// Attach is PUBLISH_UNPUBLISH_VOLUME: volumes are attached before they are used.
	Attach bool
	// Capacity is GET_CAPACITY.
	Capacity bool
	// SingleNodeMultiWriter distinguishes ReadWriteOnce from ReadWriteOncePod.
	SingleNodeMultiWriter bool
	// Snapshots is CREATE_DELETE_SNAPSHOT.
	Snapshots bool
	// Clones is CLONE_VOLUME.
	Clones bool
	// Modify is MODIFY_VOLUME.
	Modify bool
	// NodeTopology is the topology of the driver's own node, nil unless it was
	// requested.
	NodeTopology *csi.Topology
}
