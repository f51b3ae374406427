package volume

import "errors"

// What callers decide on. Every package of the driver's side wraps one of
// these, so that one place can map them to what a caller of the API sees.
var (
	// ErrInvalid: a name, path, parameter or option is wrong in itself; the same
	// request can never succeed.
	ErrInvalid = errors.New("invalid")
	// ErrForeignID: the text has the form of no volume ID this driver or those it
	// replaces ever wrote, so no volume of ours can go by it.
	ErrForeignID = errors.New("not a volume ID of this driver")
	// ErrNotFound: the volume does not exist on its export.
	ErrNotFound = errors.New("volume not found")
	// ErrSnapshotNotFound: the snapshot does not exist on its export.
	ErrSnapshotNotFound = errors.New("snapshot not found")
	// ErrInGroup: the snapshot is a member of a group snapshot and goes with it.
	ErrInGroup = errors.New("member of a group snapshot")
	// ErrInUse: a copy is being made of it.
	ErrInUse = errors.New("in use")
	// ErrWritten: a volume was written to while a snapshot of several was made.
	ErrWritten = errors.New("written to while it was copied")
	// ErrInProgress: the work goes on after the call; the same call again waits for
	// it.
	ErrInProgress = errors.New("still in progress")
	// ErrIncompatible: the volume exists with another size or other parameters.
	ErrIncompatible = errors.New("volume exists but differs")
	// ErrSnapshotDiffers: the snapshot exists and is of another volume.
	ErrSnapshotDiffers = errors.New("snapshot exists but differs")
	// ErrOwned: the directory belongs to another live volume, or holds or lies in
	// one that does.
	ErrOwned = errors.New("directory belongs to another volume")
	// ErrNewerRecord: a driver of a later version has written the record of the
	// volume or snapshot, in a way that this one must not go by.
	ErrNewerRecord = errors.New("record of a newer driver")
	// ErrNotAdopted: a directory that belongs to no volume is in the place of a new
	// one's, and is not to become it.
	ErrNotAdopted = errors.New("directory is there already and is not adopted")
	// ErrToken: a page of a list begins nowhere.
	ErrToken = errors.New("starting token not valid")
	// ErrOutOfRange: no volume can have the size asked for.
	ErrOutOfRange = errors.New("size out of range")
	// ErrUnsupported: known, but not something this driver does.
	ErrUnsupported = errors.New("not supported")

	// ErrUnreachable: the server's address does not resolve or does not answer.
	ErrUnreachable = errors.New("NFS server not reachable")
	// ErrShareNotFound: the server answers but does not export this path, or the
	// path is gone.
	ErrShareNotFound = errors.New("NFS share not found")
	// ErrAccessDenied: the server refuses this client or this identity.
	ErrAccessDenied = errors.New("NFS access denied")
	// ErrRefused: the server lets this identity in, but not do what is needed; the
	// error says what the export lacks.
	ErrRefused = errors.New("refused by the NFS server")
	// ErrStale: the mount is there but what it shows is gone from the server.
	ErrStale = errors.New("NFS mount is stale")
	// ErrMountOptions: the kernel or the server does not take the mount options
	// or none of the protocol versions asked for.
	ErrMountOptions = errors.New("NFS mount options not accepted")
)
