package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// parallels are how many callers there are at a time.
var parallels = []struct {
	name string
	n    int
}{{"seq", 1}, {"par10", 10}}

// repeats of what takes long: the figure is their median.
const repeats = 3

// benchVolumes: CreateVolume beside mkdir(2), DeleteVolume of an empty volume
// beside rename(2), over the same export.
func benchVolumes(b *bench) error {
	if _, err := b.create("warm", "xfs"); err != nil {
		return err
	}
	for _, p := range parallels {
		dir := filepath.Join(b.raw, "floor-"+p.name)
		if err := os.Mkdir(dir, 0o777); err != nil {
			return err
		}
		made := volumeSet{}
		err := b.beside(p.n, b.rounds, operation{
			name:  b.name("create-volume/" + p.name),
			floor: func(i int) error { return os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o777) },
			value: func(i int) error {
				v, err := b.create(fmt.Sprintf("volume-%s-%d", p.name, i), "xfs")
				made.put(i, v)
				return err
			},
			lessProbe: true,
		})
		if err != nil {
			return err
		}
		err = b.beside(p.n, b.rounds, operation{
			name: b.name("delete-volume/" + p.name),
			floor: func(i int) error {
				return os.Rename(filepath.Join(dir, fmt.Sprint(i)), filepath.Join(dir, fmt.Sprintf("renamed-%d", i)))
			},
			value: func(i int) error { return b.delete(made.get(i)) },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// benchDelete: DeleteVolume of a volume with many files beside that of an empty
// one: the time of the call must not depend on what is in the volume.
func benchDelete(b *bench) error {
	var empty, full, rename samples
	for i := range repeats {
		none, err := b.create(fmt.Sprintf("empty-%d", i), "xfs")
		if err != nil {
			return err
		}
		many, err := b.create(fmt.Sprintf("full-%d", i), "xfs")
		if err != nil {
			return err
		}
		if err := fill(b.onDisk(many), b.files); err != nil {
			return err
		}
		floor := filepath.Join(b.raw, fmt.Sprintf("floor-%d", i))
		if err := os.Mkdir(floor, 0o777); err != nil {
			return err
		}
		for _, step := range []struct {
			into *samples
			op   func(int) error
		}{
			{&rename, func(int) error { return os.Rename(floor, floor+"-renamed") }},
			{&empty, func(int) error { return b.delete(none) }},
			{&full, func(int) error { return b.delete(many) }},
		} {
			took, err := measure(1, 1, step.op)
			if err != nil {
				return err
			}
			*step.into = append(*step.into, took...)
		}
		if err := b.awaitEmptyTrash("xfs"); err != nil {
			return err
		}
	}
	figure(b.name(fmt.Sprintf("delete-volume-%d-files", b.files)), full.percentile(50), rename.percentile(50), quickTarget)
	figure(b.name(fmt.Sprintf("delete-volume-%d-files-over-empty", b.files)), full.percentile(50), empty.percentile(50), 1.2)
	return nil
}

// benchReclaim: the time from DeleteVolume until the files are gone, beside
// os.RemoveAll of the same tree over the same kind of mount.
func benchReclaim(b *bench) error {
	var reclaims, floors samples
	for i := range repeats {
		floor, reclaim, err := b.reclaimOnce(i)
		if err != nil {
			return err
		}
		floors, reclaims = append(floors, floor), append(reclaims, reclaim)
	}
	target := 1.0
	if b.network != roundTrip(0) {
		target = 0.2
	}
	figure(b.name(fmt.Sprintf("reclaim-%d-files", b.files)), reclaims.percentile(50), floors.percentile(50), target)
	return nil
}

func (b *bench) reclaimOnce(i int) (floor, reclaim time.Duration, err error) {
	v, err := b.create(fmt.Sprintf("reclaimed-%d", i), "xfs")
	if err != nil {
		return 0, 0, err
	}
	removed := fmt.Sprintf("removed-%d", i)
	for _, dir := range []string{b.onDisk(v), filepath.Join(b.exports["xfs"], removed)} {
		if err := fill(dir, b.files); err != nil {
			return 0, 0, err
		}
	}
	if floor, err = timed(func() error { return os.RemoveAll(filepath.Join(b.raw, removed)) }); err != nil {
		return 0, 0, err
	}
	reclaim, err = timed(func() error {
		if err := b.delete(v); err != nil {
			return err
		}
		return b.awaitEmptyTrash("xfs")
	})
	return floor, reclaim, err
}

// awaitEmptyTrash looks at the server's own disk, which costs the client nothing.
func (b *bench) awaitEmptyTrash(fs string) error {
	return b.awaitGone(fs, "*")
}

// awaitGone waits until the trash has nothing of these names.
func (b *bench) awaitGone(fs, names string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := filepath.Glob(filepath.Join(b.exports[fs], ".nfs-csi", "trash", names))
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-tick.C:
		}
	}
}

// fill makes n small files in directories of 1,000, on the server's own disk.
func fill(dir string, n int) error {
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("dir-%d", i/1000))
		if i%1000 == 0 {
			if err := os.MkdirAll(sub, 0o777); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), []byte("x"), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// volumeSet is volumes by number, for workers in parallel.
type volumeSet struct {
	mu sync.Mutex
	by map[int]*csi.Volume
}

func (s *volumeSet) put(i int, v *csi.Volume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[int]*csi.Volume{}
	}
	s.by[i] = v
}

func (s *volumeSet) get(i int) *csi.Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[i]
}
