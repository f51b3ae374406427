package session

import (
	"io/fs"
	"iter"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
)

// Records are the read methods of a catalog.
type Records interface {
	Read(subDir string) (catalog.Record, error)
	Below(dir string) ([]string, error)
	CheckNotNested(subDir string) error
	ReadSnapshot(place string) (catalog.Snapshot, error)
	SnapshotPaths(after string) iter.Seq2[string, error]
	ReadGroup(name string) (catalog.Group, error)
}

// Records are those of the catalog; empty without one.
func (s *Session) Records() Records {
	if s.Cat == nil {
		return noRecords{}
	}
	return s.Cat
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
