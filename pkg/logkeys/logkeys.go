// Package logkeys names the fields of log lines, so that one thing has one name in
// the logs of both programs.
package logkeys

// What a call is about.
const (
	VolumeID        = "volumeID"
	SourceVolumeID  = "sourceVolumeID"
	NextVolumeID    = "nextVolumeID"
	RetainedBy      = "retainedBy"
	SnapshotID      = "snapshotID"
	GroupSnapshotID = "groupSnapshotID"
	// Owner is the ID of the record that has a name or a directory now.
	Owner = "owner"
)

// What is on an export.
const (
	Export = "export"
	// Directory is relative to the export's root, as are SubDir and Record.
	Directory = "directory"
	SubDir    = "subDir"
	Record    = "record"
	Entries   = "entries"
	// Left is why something could not be removed.
	Left = "left"
)

// Copies.
const (
	Staging        = "staging"
	CapacityBytes  = "capacityBytes"
	ContentBytes   = "contentBytes"
	ContentEntries = "contentEntries"
	Devices        = "devices"
	Links          = "links"
)

// Mounts: Source is server:/path, Target the path that it is mounted at.
const (
	Source = "source"
	Target = "target"
)

// gRPC and HTTP. Call is a number that all lines of one call share.
const (
	Call         = "call"
	Method       = "method"
	Request      = "request"
	Response     = "response"
	Code         = "code"
	Duration     = "duration"
	DrainTimeout = "drainTimeout"
	Stack        = "stack"
	Path         = "path"
)

// Kubernetes objects, as klog.KObj or klog.KRef where they have a namespace.
const (
	PV                 = "PV"
	PVC                = "PVC"
	StorageClass       = "StorageClass"
	CSIStorageCapacity = "CSIStorageCapacity"
	ConfigMap          = "configMap"
	Secret             = "secret"
	Lease              = "lease"
	Node               = "node"
)

// Provisioning.
const (
	VolumeHandle = "volumeHandle"
	// Origin is what a volume is filled from.
	Origin        = "origin"
	ReclaimPolicy = "reclaimPolicy"
	Capacity      = "capacity"
	Segment       = "segment"
	Key           = "key"
	Outcome       = "outcome"
	Since         = "since"
)

// Both programs.
const (
	Version = "version"
	// Commit is what was built, Date its date.
	Commit    = "commit"
	Date      = "date"
	Mode      = "mode"
	Flag      = "flag"
	Arguments = "arguments"
	// Value is what a flag was set to, Used what it was replaced with.
	Value    = "value"
	Used     = "used"
	Address  = "address"
	Driver   = "driver"
	Workers  = "workers"
	Identity = "identity"
	Self     = "self"
	// Err is for lines that report an error at a level below that of errors.
	Err     = "err"
	Reason  = "reason"
	RetryIn = "retryIn"
)
