package inventory

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/store/volumes"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	// readers is how many records are read at a time.
	readers = 16
	// batch is how many records are read before the walk checks whether it has enough.
	batch = 64
	// listingAge is how long names read for a page serve the next ones.
	listingAge = time.Minute
)

// listings keep the names that were read for a page for the pages after it: those of
// one listing of each export.
type listings struct {
	mu      sync.Mutex
	exports map[volume.Export]*names
}

// names in directories of the catalog, sorted. They are guarded by the lock that the
// listing of the export holds.
type names struct {
	read  time.Time
	below map[string][]string
}

// names of an export for its next page, or for the first one of a new listing.
func (l *listings) names(export volume.Export, first bool) *names {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.exports[export]
	if n == nil || first || time.Since(n.read) > listingAge {
		n = &names{read: time.Now(), below: map[string][]string{}}
		l.exports[export] = n
	}
	return n
}

// walk reads up to want records after that path, 0 for all.
func walk(ctx context.Context, x *session.Session, n *names, after string, want int) ([]catalog.Record, error) {
	w := &walker{root: x.Root, records: x.Records(), names: n, want: want}
	if err := w.walk(ctx, "", after); err != nil {
		return nil, err
	}
	if !w.done() {
		clear(n.below) // this was the last page
	}
	return w.found, nil
}

// walker collects records in the order of comparePaths.
type walker struct {
	root    *os.Root
	records session.Records
	names   *names
	want    int // 0 for all
	found   []catalog.Record
}

func (w *walker) done() bool { return w.want > 0 && len(w.found) >= w.want }

// walk visits what is below dir and sorts after the path after, which is relative to
// dir.
func (w *walker) walk(ctx context.Context, dir, after string) error {
	list, err := w.below(dir)
	if err != nil {
		return err
	}
	first, rest, nested := strings.Cut(after, "/")
	for len(list) > 0 && after != "" && list[0] <= first {
		// A volume of this name was on an earlier page; a directory may lead to more.
		if list[0] == first && nested && !w.done() {
			if err := w.walk(ctx, path.Join(dir, first), rest); err != nil {
				return err
			}
		}
		list = list[1:]
	}
	for len(list) > 0 && !w.done() {
		n := min(batch, len(list))
		if w.want > 0 {
			n = min(n, w.want-len(w.found))
		}
		if err := w.readBatch(ctx, dir, list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

func (w *walker) below(dir string) ([]string, error) {
	if list, ok := w.names.below[dir]; ok {
		return list, nil
	}
	list, err := w.records.Below(dir)
	if err == nil {
		w.names.below[dir] = list
	}
	return list, err
}

// readBatch reads the records of these directories, several at a time, and descends
// into those without one.
func (w *walker) readBatch(ctx context.Context, dir string, list []string) error {
	recs, leads := make([]catalog.Record, len(list)), make([]bool, len(list))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, name := range list {
		group.Go(func() (err error) {
			if err := groupCtx.Err(); err != nil {
				return err
			}
			recs[i], leads[i], err = w.read(groupCtx, path.Join(dir, name))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, name := range list {
		switch {
		case w.done():
			return nil
		case leads[i]:
			if err := w.walk(ctx, path.Join(dir, name), ""); err != nil {
				return err
			}
		case recs[i].IsVolume():
			w.found = append(w.found, recs[i])
		}
	}
	return nil
}

// read returns the record, or that the directory may lead to some. An unreadable record
// is skipped, lest it hide all others.
func (w *walker) read(ctx context.Context, subDir string) (rec catalog.Record, leads bool, err error) {
	rec, err = w.records.Read(subDir)
	_, broken := errors.AsType[*catalog.BrokenError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return catalog.Record{}, true, nil
	case broken:
		klog.FromContext(ctx).Error(err, "Skipped the unreadable record of a volume", logkeys.SubDir, subDir)
		return catalog.Record{}, false, nil
	}
	if rec.Shared == catalog.SharedDirectory {
		return catalog.Record{}, true, nil
	}
	if err != nil {
		return rec, false, err
	}
	if pending, err := volumes.Pending(w.root, rec); err != nil || pending {
		return catalog.Record{}, false, err
	}
	return rec, false, nil
}
