package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/test/bench/internal/report"
)

const (
	// largeTarget is what the plugin may have in memory at most, however deep or wide
	// what it removes is.
	largeTarget = 64 // MiB
	// behindTarget is when ten files are to be gone that are deleted behind a large
	// volume, which is held up for them.
	behindTarget = 3 * time.Second
	// longName makes paths that no call would take.
	longName = 200
)

// benchDeep: the most that the plugin has in memory while it removes a volume of
// directories in one another.
func benchDeep(b *bench) error {
	if b.network != roundTrip(0) {
		return nil // the plugin's cost
	}
	v, err := b.create("deep", "xfs")
	if err != nil {
		return err
	}
	if err := dig(b.onDisk(v), strings.Repeat("n", longName), b.depth); err != nil {
		return err
	}
	if err := b.delete(v); err != nil {
		return err
	}
	if err := b.awaitEmptyTrash("xfs"); err != nil {
		return err
	}
	return b.peak(fmt.Sprintf("memory-deleting/depth-%d", b.depth))
}

// benchWide: the same for entries in one directory, and the time until a volume of
// ten files is gone that is deleted behind it, beside one that is deleted alone.
func benchWide(b *bench) error {
	if b.network != roundTrip(0) {
		return nil
	}
	v, err := b.create("wide", "xfs")
	if err != nil {
		return err
	}
	if err := crowd(b.onDisk(v), b.entries); err != nil {
		return err
	}
	alone, err := b.smallGone("alone")
	if err != nil {
		return err
	}
	if err := b.delete(v); err != nil {
		return err
	}
	behind, err := b.smallGone("behind")
	if err != nil {
		return err
	}
	if left, err := filepath.Glob(filepath.Join(b.exports["xfs"], ".nfs-csi/trash/wide.*")); err != nil || len(left) != 1 {
		return fmt.Errorf("the large volume did not outlast the small ones: %q, %w", left, err)
	}
	report.Line{
		Name: b.name(fmt.Sprintf("small-delete/behind-%d-entries", b.entries)), Value: round(behind).String(), Floor: round(alone).String(),
		Ratio: fmt.Sprintf("%.2f", float64(behind)/float64(alone)), Target: behindTarget.String(), OK: behind <= behindTarget,
	}.Print()
	if err := b.awaitEmptyTrash("xfs"); err != nil {
		return err
	}
	return b.peak(fmt.Sprintf("memory-deleting/entries-%d", b.entries))
}

func (b *bench) peak(name string) error {
	peak, err := report.PeakMiB(b.process.Process.Pid)
	if err == nil {
		report.AtMost(b.name(name), peak, largeTarget, "MiB")
	}
	return err
}

// smallGone is the median time until ten files are gone, from DeleteVolume on.
func (b *bench) smallGone(name string) (time.Duration, error) {
	var all samples
	for i := range repeats {
		volume := fmt.Sprintf("small-%s-%d", name, i)
		v, err := b.create(volume, "xfs")
		if err != nil {
			return 0, err
		}
		if err := crowd(b.onDisk(v), 10); err != nil {
			return 0, err
		}
		took, err := timed(func() error {
			if err := b.delete(v); err != nil {
				return err
			}
			return b.awaitGone("xfs", volume+".*")
		})
		if err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	return all.percentile(50), nil
}

// dig makes directories in one another, on the server's own disk.
func dig(dir, name string, depth int) error {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	for range depth {
		if err == nil {
			err = unix.Mkdirat(at, name, 0o777)
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		}
		_ = unix.Close(at)
		at = next
	}
	_ = unix.Close(at)
	return err
}

// crowd makes empty files in a directory, on the server's own disk.
func crowd(dir string, entries int) error {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	for i := 0; i < entries && err == nil; i++ {
		err = unix.Mknodat(at, fmt.Sprintf("entry-%d", i), unix.S_IFREG|0o666, 0)
	}
	_ = unix.Close(at)
	return err
}
