package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

var (
	errNoVolumeID = fmt.Errorf("%w: no volume ID", volume.ErrInvalid)
	// errNotAllowed: an inline volume names a server or an option that pods may not use.
	errNotAllowed = errors.New("not allowed in a pod's inline volume")
	// errPublishedOtherwise: the target has another mount, or the volume with other
	// options.
	errPublishedOtherwise = errors.New("the target is in use")
	// errElsewhere: a symlink on the server leads out of the volume's directory.
	errElsewhere = errors.New("a symlink on the server leads elsewhere")
	// errExclusive: a single-writer volume is published at another target.
	errExclusive = errors.New("the volume is for one pod at a time")
)

// mapping is the only place where errors become codes; docs/errors.md explains each.
// The first match counts: an error may wrap both its cause and the deadline that ended
// the wait.
func mapping() []struct {
	err  error
	code codes.Code
	hint string
} {
	return []struct {
		err  error
		code codes.Code
		hint string
	}{
		{volume.ErrInProgress, codes.Aborted, "retry to wait for it"},
		{context.Canceled, codes.Canceled, ""},
		{volume.ErrUnreachable, codes.Unavailable, "check that the server is up and that a firewall lets this node reach it"},
		{errNotAllowed, codes.PermissionDenied, ""},
		{errElsewhere, codes.PermissionDenied, "nothing was mounted; find out who created the symlink"},
		{volume.ErrInvalid, codes.InvalidArgument, ""},
		{volume.ErrMountOptions, codes.InvalidArgument, "check mountOptions and which NFS versions the server speaks"},
		{volume.ErrOutOfRange, codes.OutOfRange, ""},
		{volume.ErrIncompatible, codes.AlreadyExists, ""},
		{volume.ErrSnapshotDiffers, codes.AlreadyExists, ""},
		{errPublishedOtherwise, codes.AlreadyExists, "unpublish it first"},
		{volume.ErrForeignID, codes.NotFound, ""},
		{volume.ErrNotFound, codes.NotFound, ""},
		{volume.ErrSnapshotNotFound, codes.NotFound, ""},
		{volume.ErrShareNotFound, codes.NotFound, "check the path and that the server exports it"},
		{volume.ErrOwned, codes.FailedPrecondition, ""},
		{volume.ErrNewerRecord, codes.FailedPrecondition, "run that version of the driver, or a later one"},
		{volume.ErrNotAdopted, codes.FailedPrecondition, ""},
		{volume.ErrUnsupported, codes.FailedPrecondition, ""},
		{volume.ErrInGroup, codes.InvalidArgument, "delete the group snapshot"},
		{volume.ErrWritten, codes.FailedPrecondition, "stop what writes to the volumes of the group, or set writes: allow in the class"},
		{volume.ErrInUse, codes.FailedPrecondition, "it can be deleted when the copy is done"},
		{errExclusive, codes.FailedPrecondition, ""},
		{volume.ErrAccessDenied, codes.PermissionDenied, "check the export's list of clients and its sec= option; if it admits only nodes or privileged ports, the controller needs the component host-network"},
		{volume.ErrRefused, codes.PermissionDenied, ""},
		{volume.ErrToken, codes.Aborted, "start again without a token"},
		{volume.ErrStale, codes.Unavailable, "the next call remounts it"},
		{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
		{unix.ENOSPC, codes.ResourceExhausted, "free space on the export"},
		{unix.EDQUOT, codes.ResourceExhausted, "raise the quota on the export"},
		{unix.EROFS, codes.FailedPrecondition, "the server exports it read-only; export it with rw or, if it is a pseudo-root of NFSv4, name an export below it as share"},
		{fs.ErrPermission, codes.PermissionDenied, "the export's root_squash or the ownership of its directory keeps the driver out"},
	}
}

// toStatus maps an error to its code; INTERNAL if the mapping does not have it.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	for _, m := range mapping() {
		if errors.Is(err, m.err) {
			if m.hint != "" {
				return status.Errorf(m.code, "%v (%s)", err, m.hint)
			}
			return status.Error(m.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}
