package inventory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Severity of a condition.
type Severity int

// From a volume that works badly to one whose data is gone.
const (
	Degraded Severity = iota + 1
	Inaccessible
	DataLoss
)

// Condition is what is wrong with a volume.
type Condition struct {
	Severity Severity
	// Reason is one word in CamelCase, Message is for people.
	Reason, Message string
}

// unusable turns an error that concerns the whole export into a condition.
func unusable(ctx context.Context, err error) (Condition, bool) {
	if ctx.Err() != nil {
		return Condition{}, false
	}
	for _, known := range []struct {
		err    error
		reason string
	}{
		{volume.ErrUnreachable, "ServerUnreachable"},
		{context.DeadlineExceeded, "ServerNotAnswering"},
		{volume.ErrShareNotFound, "ShareNotFound"},
		{volume.ErrAccessDenied, "AccessDenied"},
		{volume.ErrRefused, "AccessDenied"},
		{volume.ErrStale, "StaleMount"},
	} {
		if errors.Is(err, known.err) {
			return Condition{Inaccessible, known.reason, err.Error()}, true
		}
	}
	return Condition{}, false
}

// common is what is wrong with every volume of an export.
func (i *Inventory) common(root *os.Root, export volume.Export) ([]Condition, error) {
	found, err := exhausted(root)
	return append(found, i.refused(export)...), err
}

// exhausted tells whether nothing more can be written to the export.
func exhausted(root *os.Root) ([]Condition, error) {
	st, err := statfs(root)
	if err != nil {
		return nil, err
	}
	var found []Condition
	if st.Blocks > 0 && st.Bavail == 0 {
		found = append(found, Condition{Degraded, "NoSpace", "the export has no free space"})
	}
	if st.Files > 0 && st.Ffree == 0 {
		found = append(found, Condition{Degraded, "NoInodes", "the export can hold no more files"})
	}
	return found, nil
}

// refused is about deleted volumes that remain on the export until somebody intervenes.
func (i *Inventory) refused(export volume.Export) []Condition {
	deleted, entry := i.cfg.Refused(export)
	if deleted == 0 {
		return nil
	}
	return []Condition{{Degraded, "DeletedVolumesRemain", fmt.Sprintf("%d deleted volumes still take up space on the export. "+
		"The server refuses to remove %s. Remove it on the server, or change its owner to the user that the server maps the driver to",
		deleted, entry)}}
}

// lost is what is wrong with the volume's own directory.
func lost(root *os.Root, id volume.ID) []Condition {
	where := id.Export.Source(id.SubDir)
	info, err := fsat.LstatBelow(root, id.SubDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Condition{{DataLoss, "DirectoryMissing", where + " is gone, and not because the driver deleted it"}}
	case err != nil:
		return []Condition{{Inaccessible, "DirectoryInaccessible", err.Error()}}
	case !info.IsDir():
		return []Condition{{DataLoss, "DirectoryReplaced", where + " is no longer a directory"}}
	}
	return nil
}
