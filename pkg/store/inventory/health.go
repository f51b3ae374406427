package inventory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	// healthTimeout is when a server that does not answer makes a volume
	// inaccessible.
	healthTimeout = 5 * time.Second
	// healthScan is how many volumes are checked for one page at most.
	healthScan = 500
)

// Health returns what is wrong with a volume; nothing if all is well.
//
// Errors: volume.ErrNotFound, volume.ErrInvalid.
func (i *Inventory) Health(ctx context.Context, id volume.ID, mountOptions []string) ([]Condition, error) {
	if err := volume.CheckSubDir(id.SubDir); err != nil {
		return nil, err
	}
	probe, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	// Under the export's lock, not the volume's: a server that hangs blocks one probe
	// per export rather than one per call.
	found, err := session.Result(probe, i.cfg.Exports.View, i.Target(session.Key{Export: id.Export}, mountOptions), func(_ context.Context, x *session.Session) ([]Condition, error) {
		return i.check(x, id)
	})
	if err == nil {
		return found, nil
	}
	if condition, ok := unusable(ctx, err); ok {
		return []Condition{condition}, nil
	}
	return nil, fmt.Errorf("health of volume %s: %w", id, err)
}

func (i *Inventory) check(x *session.Session, id volume.ID) ([]Condition, error) {
	_, err := volumes.Find(x, id)
	if broken, ok := errors.AsType[*catalog.BrokenError](err); ok {
		return []Condition{{Degraded, "RecordUnreadable", broken.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	common, err := i.common(x.Root, id.Export)
	if err != nil {
		return nil, err
	}
	return append(common, lost(x.Root, id)...), nil
}

// Unhealthy is a volume and what is wrong with it.
type Unhealthy struct {
	ID         string
	Conditions []Condition
}

// HealthPage of a list. An empty page may have a next one.
type HealthPage struct {
	Volumes []Unhealthy
	Next    string
}

// checked is a volume that was checked, and the path of its record.
type checked struct {
	path string
	Unhealthy
}

// ListHealth is List for the volumes with which something is wrong. On an export that
// cannot be used those are all that were seen on it before.
//
// Errors: volume.ErrToken.
func (i *Inventory) ListHealth(ctx context.Context, limit int, token string) (HealthPage, error) {
	start, err := parseToken(token)
	if err != nil {
		return HealthPage{}, fmt.Errorf("list health of volumes: %w", err)
	}
	var page HealthPage
	scanned := 0
	for _, export := range i.from(start.export) {
		list, err := i.checkExport(ctx, export, start.in(export), healthScan-scanned+1)
		if err != nil {
			return HealthPage{}, fmt.Errorf("list health of volumes on %s: %w", export, err)
		}
		for n, c := range list {
			if c.Conditions != nil {
				page.Volumes = append(page.Volumes, c.Unhealthy)
			}
			scanned++
			enough := limit > 0 && len(page.Volumes) == limit || scanned == healthScan
			last := n == len(list)-1
			if enough && (!last || !i.isLast(export)) {
				page.Next = position{export.String(), c.path}.token()
			}
			if enough {
				return page, nil
			}
		}
	}
	return page, nil
}

func (i *Inventory) isLast(export volume.Export) bool { return len(i.from(export.String())) < 2 }

func (i *Inventory) checkExport(ctx context.Context, export volume.Export, after string, want int) ([]checked, error) {
	probe, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	// Not under the lock of List, which may take longer without anything being wrong.
	t := i.Target(session.Key{Export: export, SubDir: volume.MetaDir + "/health"}, nil)
	list, err := session.Result(probe, i.cfg.Exports.View, t, func(ctx context.Context, x *session.Session) ([]checked, error) {
		recs, err := walk(ctx, x, i.checks.names(export, after == ""), after, want)
		if err != nil {
			return nil, err
		}
		common, err := i.common(x.Root, export)
		if err != nil {
			return nil, err
		}
		return checkAll(ctx, x.Root, recs, common)
	})
	if err == nil {
		return list, nil
	}
	condition, ok := unusable(ctx, err)
	if !ok {
		return nil, err
	}
	paths, ids := i.seen(export)
	for _, path := range paths {
		if comparePaths(path, after) > 0 {
			list = append(list, checked{path, Unhealthy{ids[path], []Condition{condition}}})
		}
	}
	return list[:min(len(list), want)], nil
}

func checkAll(ctx context.Context, root *os.Root, recs []catalog.Record, common []Condition) ([]checked, error) {
	list := make([]checked, len(recs))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for n, rec := range recs {
		group.Go(func() error {
			list[n].path = rec.SubDir
			id, err := volume.ParseID(rec.ID)
			if err != nil {
				return nil //nolint:nilerr // List leaves it out as well
			}
			own := append(append([]Condition(nil), common...), lost(root, id)...)
			list[n].Unhealthy = Unhealthy{rec.ID, own}
			return groupCtx.Err()
		})
	}
	return list, group.Wait()
}
