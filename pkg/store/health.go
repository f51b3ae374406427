package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/fsat"
	"github.com/nfs-csi/nfs-csi/pkg/store/reclaim"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
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

const (
	// healthTimeout is when a server that does not answer makes a volume
	// inaccessible.
	healthTimeout = 5 * time.Second
	// healthScan is how many volumes are looked at for one page at most.
	healthScan = 500
)

// Health tells what is wrong with a volume; nothing if all is well.
//
// Errors: volume.ErrNotFound, volume.ErrInvalid.
func (s *Store) Health(ctx context.Context, id volume.ID, mountOptions []string) ([]Condition, error) {
	if err := volume.CheckSubDir(id.SubDir); err != nil {
		return nil, err
	}
	probe, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	// Under the export's lock, not the volume's: a server that hangs blocks one
	// probe of each export, not one for each call.
	found, err := session.View(probe, s.exports, s.anyShare(id.Export, "", mountOptions), func(_ context.Context, x *session.Session) ([]Condition, error) {
		_, err := volumes.Find(x, id)
		if broken := (*catalog.BrokenError)(nil); errors.As(err, &broken) {
			return []Condition{{Degraded, "RecordUnreadable", broken.Error()}}, nil
		}
		if err != nil {
			return nil, err
		}
		return s.inspect(x.Root, id)
	})
	if err == nil {
		return found, nil
	}
	if lost, ok := unusable(ctx, err); ok {
		return []Condition{lost}, nil
	}
	return nil, fmt.Errorf("health of volume %s: %w", id, err)
}

// unusable makes a condition of an error that concerns the whole export.
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

// inspect looks at a volume that has a record or is a predecessor's.
func (s *Store) inspect(root *os.Root, id volume.ID) ([]Condition, error) {
	found, err := s.common(root, id.Export)
	if err != nil {
		return nil, err
	}
	return append(found, lost(root, id)...), nil
}

// common is what is wrong with every volume of an export.
func (s *Store) common(root *os.Root, export volume.Export) ([]Condition, error) {
	found, err := full(root)
	return append(found, remains(s.late(export))...), err
}

// remains is about deleted volumes that stay on the export until somebody intervenes.
func remains(late reclaim.Late) []Condition {
	if late.Refused == 0 {
		return nil
	}
	return []Condition{{Degraded, "DeletedVolumesRemain", fmt.Sprintf("%d deleted volumes still take up space on the export. "+
		"The server refuses to remove %s. Remove it on the server, or change its owner to the user that the server maps the driver to",
		late.Refused, late.Left)}}
}

func lost(root *os.Root, id volume.ID) []Condition {
	where := id.Export.Source(id.SubDir)
	info, err := fsat.LstatBelow(root, id.SubDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Condition{{DataLoss, "DirectoryMissing", where + " is gone, by other hands than the driver's"}}
	case err != nil:
		return []Condition{{Inaccessible, "DirectoryInaccessible", err.Error()}}
	case !info.IsDir():
		return []Condition{{DataLoss, "DirectoryReplaced", where + " is not a directory any more"}}
	}
	return nil
}

// full tells whether nothing can be written to the export.
func full(root *os.Root) ([]Condition, error) {
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

// Unhealthy is a volume and what is wrong with it.
type Unhealthy struct {
	ID         string
	Conditions []Condition
}

// HealthPage of a list; it may be empty and yet have a next one.
type HealthPage struct {
	Volumes []Unhealthy
	Next    string
}

// checked is a volume that was looked at.
type checked struct {
	subDir string
	Unhealthy
}

// ListHealth is List for the volumes with which something is wrong. On an export
// that cannot be used those are all that were seen on it before.
//
// Errors: volume.ErrToken.
func (s *Store) ListHealth(ctx context.Context, limit int, token string) (HealthPage, error) {
	start, err := parseToken(token)
	if err != nil {
		return HealthPage{}, fmt.Errorf("list health of volumes: %w", err)
	}
	var page HealthPage
	looked := 0
	for _, export := range s.known.from(start.export) {
		list, err := s.check(ctx, export, start.in(export), healthScan-looked+1)
		if err != nil {
			return HealthPage{}, fmt.Errorf("list health of volumes on %s: %w", export, err)
		}
		for i, c := range list {
			if c.Conditions != nil {
				page.Volumes = append(page.Volumes, c.Unhealthy)
			}
			looked++
			enough := limit > 0 && len(page.Volumes) == limit || looked == healthScan
			if enough && i < len(list)-1 {
				page.Next = position{export.String(), c.subDir}.token()
				return page, nil
			}
			if enough {
				page.Next = s.after(export, c.subDir)
				return page, nil
			}
		}
	}
	return page, nil
}

// after is the token for what comes after the last volume of an export, if
// there is another export.
func (s *Store) after(export volume.Export, subDir string) string {
	if len(s.known.from(export.String())) < 2 {
		return ""
	}
	return position{export.String(), subDir}.token()
}

func (s *Store) check(ctx context.Context, export volume.Export, after string, want int) ([]checked, error) {
	probe, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	// Beside List, which may take longer without anything being wrong.
	t := s.anyShare(export, volume.MetaDir+"/health", nil)
	list, err := session.View(probe, s.exports, t, func(ctx context.Context, x *session.Session) ([]checked, error) {
		recs, err := walk(ctx, x, s.checks.take(export, after == ""), after, want)
		if err != nil {
			return nil, err
		}
		common, err := s.common(x.Root, export)
		if err != nil {
			return nil, err
		}
		return inspectAll(ctx, x.Root, recs, common)
	})
	if err == nil {
		return list, nil
	}
	condition, ok := unusable(ctx, err)
	if !ok {
		return nil, err
	}
	subDirs, ids := s.known.seen(export)
	for _, subDir := range subDirs {
		if comparePaths(subDir, after) > 0 {
			list = append(list, checked{subDir, Unhealthy{ids[subDir], []Condition{condition}}})
		}
	}
	return list[:min(len(list), want)], nil
}

func inspectAll(ctx context.Context, root *os.Root, recs []catalog.Record, common []Condition) ([]checked, error) {
	list := make([]checked, len(recs))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, rec := range recs {
		group.Go(func() error {
			list[i].subDir = rec.SubDir
			id, err := volume.ParseID(rec.ID)
			if err != nil {
				return nil //nolint:nilerr // List leaves it out as well
			}
			own := append(append([]Condition(nil), common...), lost(root, id)...)
			list[i].Unhealthy = Unhealthy{rec.ID, own}
			return groupCtx.Err()
		})
	}
	return list, group.Wait()
}
