package volume

import "errors"

// Sentinel errors. Every package of the driver wraps one of these, so that one place
// can map them to gRPC codes.
var (
	// ErrInvalid: a name, path, parameter or option is invalid; the same request can
	// never succeed.
	ErrInvalid = errors.New("invalid")
	// ErrForeignID: neither this driver nor those it replaces ever wrote an ID of this
	// form, so none of its volumes can have it.
	ErrForeignID = errors.New("not a volume ID of this driver")
	// ErrNotFound: the volume does not exist on its export.
	ErrNotFound = errors.New("volume not found")
	// ErrSnapshotNotFound: the snapshot does not exist on its export.
	ErrSnapshotNotFound = errors.New("snapshot not found")
	// ErrInGroup: the snapshot is a member of a group snapshot and is deleted with it.
	ErrInGroup = errors.New("member of a group snapshot")
	// ErrInUse: a copy is being made of it.
	ErrInUse = errors.New("in use")
	// ErrWritten: a volume was written to while a group snapshot was made.
	ErrWritten = errors.New("written to while it was copied")
	// ErrInProgress: the operation continues after the call; a retry waits for it.
	ErrInProgress = errors.New("still in progress")
	// ErrIncompatible: the volume exists with another size or other parameters.
	ErrIncompatible = errors.New("volume exists but differs")
	// ErrSnapshotDiffers: the snapshot exists and is of another volume.
	ErrSnapshotDiffers = errors.New("snapshot exists but differs")
	// ErrOwned: the directory belongs to another volume, or contains or lies in one that
	// does.
	ErrOwned = errors.New("directory belongs to another volume")
	// ErrNewerRecord: a later version of the driver wrote the record of the volume or
	// snapshot, in a form that this version must not use.
	ErrNewerRecord = errors.New("record of a newer driver")
	// ErrNotAdopted: a directory without a volume exists at the path of the new volume,
	// and the class does not allow adopting it.
	ErrNotAdopted = errors.New("directory is there already and is not adopted")
	// ErrToken: the starting token of a list is not one of this driver.
	ErrToken = errors.New("starting token not valid")
	// ErrOutOfRange: no volume can have the requested size.
	ErrOutOfRange = errors.New("size out of range")
	// ErrUnsupported: a feature that this driver does not have.
	ErrUnsupported = errors.New("not supported")

	// ErrUnreachable: the server's address does not resolve or does not answer.
	ErrUnreachable = errors.New("NFS server not reachable")
	// ErrShareNotFound: the server answers but does not export this path, or the path
	// no longer exists.
	ErrShareNotFound = errors.New("NFS share not found")
	// ErrAccessDenied: the server refuses this client or this identity.
	ErrAccessDenied = errors.New("NFS access denied")
	// ErrRefused: the server grants access but refuses the operation; the error tells
	// how to export instead.
	ErrRefused = errors.New("refused by the NFS server")
	// ErrStale: the mounted directory no longer exists on the server.
	ErrStale = errors.New("NFS mount is stale")
	// ErrMountOptions: the kernel or the server rejects the mount options or all of the
	// requested protocol versions.
	ErrMountOptions = errors.New("NFS mount options not accepted")
)
