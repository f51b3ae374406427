package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A directory that is to be deleted is taken to TempDir, where nobody touches it
// for an hour, and goes from there to the trash, which any controller empties at
// any time. Between the two there is time to see whose directory it was.

func takenKind(k key) string { return kindOf("deleted", k) }

// take renames the volume's directory, however much is in it, and returns its new
// name; none if there is no directory.
func (s *Store) take(ctx context.Context, root *os.Root, cat *catalog.Catalog, k key) (name string, err error) {
	temp, name, err := cat.Temp(takenKind(k))
	if err != nil {
		return "", err
	}
	from, err := openPlace(root, k.subDir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer from.close()
	if from.parent == root {
		from.at = cat.Export()
	}
	if err := s.step(ctx, "take directory away"); err != nil {
		return "", err
	}
	for range maxLostRaces {
		err = rename(from, place{at: temp, name: name})
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESTALE) {
			return name, err
		}
		// Gone before, or the reply to a rename that took place was lost, or the client
		// remembers the directory of a volume before this one.
		if there, _, lookErr := lookAgain(from); lookErr != nil || !there {
			return "", lookErr
		}
	}
	return "", fmt.Errorf("%w: %s is being replaced: %w", volume.ErrInProgress, k.subDir, err)
}

// lookAgain is directoryNow for a place; a parent that is gone has nothing in it.
func lookAgain(p place) (bool, fs.FileInfo, error) {
	there, info, err := directoryNow(p.parent, p.name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil, nil
	}
	return there, info, err
}

// putBack gives a directory back that is another volume's.
func putBack(root *os.Root, cat *catalog.Catalog, taken, subDir string) error {
	if taken == "" {
		return nil
	}
	temp, _, err := cat.Temp("")
	if err != nil {
		return err
	}
	to, err := makePlace(root, subDir)
	if err != nil {
		return err
	}
	defer to.close()
	return rename(place{at: temp, name: taken}, to)
}

// discardTaken moves to the trash what was taken by this call or, where it found
// no directory, by an earlier one that did not get further.
func (s *Store) discardTaken(ctx context.Context, cat *catalog.Catalog, k key, taken string) error {
	if err := s.step(ctx, "move directory to trash"); err != nil {
		return err
	}
	if taken != "" {
		return trash(cat, k.subDir, taken)
	}
	return discardAllTaken(cat, k)
}

func discardAllTaken(cat *catalog.Catalog, k key) error {
	names, err := cat.Temporary(takenKind(k))
	for _, name := range names {
		err = errors.Join(err, trash(cat, k.subDir, path.Base(name)))
	}
	return err
}

// finishTaken is discardTaken for a volume of which nothing else is left.
func finishTaken(cat *catalog.Catalog, k key) error {
	if same, err := unchanged(cat, k.subDir, catalog.Record{}, false); err != nil || !same {
		return err
	}
	return discardAllTaken(cat, k)
}

// trash moves what was taken to where the reclaimer finds it.
func trash(cat *catalog.Catalog, subDir, taken string) error {
	temp, _, err := cat.Temp("")
	if err != nil {
		return err
	}
	bin, err := cat.Trash()
	if err != nil {
		return err
	}
	for range maxLostRaces {
		err = rename(place{at: temp, name: taken}, place{at: bin, name: trashName(subDir, time.Now())})
		switch {
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, fs.ErrExist):
			continue // another one of the very same name and nanosecond
		case errors.Is(err, fs.ErrNotExist):
			return nil // by another controller
		}
		return err
	}
	return err
}
