package store

import (
	"errors"
	"io/fs"
	"iter"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// withRecords is withCatalog for a job that only reads. On an export that has no
// catalog, as one with static volumes only, it makes none; the job gets nil.
func withRecords(h *share.Handle, job func(*catalog.Catalog) error) error {
	_, err := h.Root().Lstat(volume.MetaDir)
	if errors.Is(err, fs.ErrNotExist) {
		return job(nil)
	}
	if err != nil {
		return err
	}
	return withCatalog(h, job)
}

// records are what can be read of a catalog.
type records interface {
	Read(subDir string) (catalog.Record, error)
	Below(dir string) ([]string, error)
	CheckNotNested(subDir string) error
	ReadSnapshot(place string) (catalog.Snapshot, error)
	SnapshotPaths(after string) iter.Seq2[string, error]
	ReadGroup(name string) (catalog.Group, error)
}

// recordsOf are those of the catalog, or none where there is no catalog.
func recordsOf(cat *catalog.Catalog) records {
	if cat == nil {
		return noRecords{}
	}
	return cat
}

type noRecords struct{}

func (noRecords) Read(string) (catalog.Record, error) { return catalog.Record{}, fs.ErrNotExist }

func (noRecords) Below(string) ([]string, error) { return nil, nil }

func (noRecords) CheckNotNested(string) error { return nil }

func (noRecords) ReadSnapshot(string) (catalog.Snapshot, error) {
	return catalog.Snapshot{}, fs.ErrNotExist
}

func (noRecords) SnapshotPaths(string) iter.Seq2[string, error] {
	return func(func(string, error) bool) {}
}

func (noRecords) ReadGroup(string) (catalog.Group, error) { return catalog.Group{}, fs.ErrNotExist }
