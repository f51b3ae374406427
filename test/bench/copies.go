package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nfs-csi/nfs-csi/test/bench/internal/report"
)

const (
	bigFile    = 256 << 20
	smallFiles = 5000
	smallFile  = 4 << 10
)

// copyFloors are what a person would copy the volume with.
var copyFloors = map[string][]string{
	"ext4": {"cp", "-a"},
	"xfs":  {"cp", "-a", "--reflink=always"},
}

// benchCopies: CreateSnapshot and the clone of a volume beside cp(1) over the
// same mount, and what the plugin holds in memory meanwhile.
func benchCopies(b *bench) error {
	able, err := b.canCopy()
	if err != nil {
		return err
	}
	if !able {
		fmt.Fprintln(os.Stderr, "bench: copies: not measured, the driver has no snapshots and clones")
		return nil
	}
	for _, fs := range []string{"ext4", "xfs"} {
		if err := b.benchCopiesOn(fs); err != nil {
			return fmt.Errorf("%s: %w", fs, err)
		}
	}
	return nil
}

func (b *bench) canCopy() (bool, error) {
	resp, err := b.controller.ControllerGetCapabilities(b.ctx, &csi.ControllerGetCapabilitiesRequest{})
	has := map[csi.ControllerServiceCapability_RPC_Type]bool{}
	for _, c := range resp.GetCapabilities() {
		has[c.GetRpc().GetType()] = true
	}
	return has[csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT] && has[csi.ControllerServiceCapability_RPC_CLONE_VOLUME], err
}

func (b *bench) benchCopiesOn(fs string) error {
	source, err := b.create("source-"+fs, fs)
	if err != nil {
		return err
	}
	if err := fillForCopy(b.onDisk(source)); err != nil {
		return err
	}
	raw, err := b.mountRaw(b.exports[fs])
	if err != nil {
		return err
	}
	stop := b.watchMemory()
	var floors, snapshots, clones samples
	for i := range repeats {
		once := copyOnce{bench: b, source: source, fs: fs, name: fmt.Sprintf("%s-%d", fs, i)}
		for _, step := range []struct {
			into *samples
			op   func() error
		}{
			{&floors, func() error { return once.floor(raw) }},
			{&snapshots, once.snapshot},
			{&clones, once.clone},
		} {
			took, err := timed(step.op)
			if err != nil {
				return err
			}
			*step.into = append(*step.into, took)
		}
		if err := once.remove(); err != nil {
			return err
		}
	}
	peak, err := stop()
	if err != nil {
		return err
	}
	target := 1.0
	if b.network != roundTrip(0) {
		target = 0.25
	}
	figure(b.name("snapshot/"+fs), snapshots.percentile(50), floors.percentile(50), target)
	figure(b.name("clone/"+fs), clones.percentile(50), floors.percentile(50), target)
	report.AtMost(b.name("memory-copying/"+fs), peak, 64, "MiB")
	return nil
}

// copyOnce is each copy of the source once.
type copyOnce struct {
	*bench
	source, cloned *csi.Volume
	taken          *csi.Snapshot
	fs, name       string
}

func (c *copyOnce) copied() string { return "copied-" + c.name }

// floor is the copy that a person would make.
func (c *copyOnce) floor(raw string) error {
	argv := slices.Concat(copyFloors[c.fs], []string{filepath.Join(raw, filepath.Base(c.onDisk(c.source))), filepath.Join(raw, c.copied())})
	if out, err := exec.CommandContext(c.ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", argv, err, out)
	}
	return nil
}

func (c *copyOnce) snapshot() error {
	return c.untilDone(func(ctx context.Context) (bool, error) {
		resp, err := c.controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{SourceVolumeId: c.source.GetVolumeId(), Name: "snapshot-" + c.name})
		c.taken = resp.GetSnapshot()
		return c.taken.GetReadyToUse(), err
	})
}

func (c *copyOnce) clone() error {
	return c.untilDone(func(ctx context.Context) (bool, error) {
		resp, err := c.controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name: "clone-" + c.name, VolumeCapabilities: []*csi.VolumeCapability{access},
			CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30},
			Parameters:    map[string]string{"server": c.server, "share": c.exports[c.fs]},
			VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
				Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: c.source.GetVolumeId()},
			}},
		})
		c.cloned = resp.GetVolume()
		return err == nil, err
	})
}

// remove makes room for the next ones, and waits until there is.
func (c *copyOnce) remove() error {
	_, err := c.controller.DeleteSnapshot(c.ctx, &csi.DeleteSnapshotRequest{SnapshotId: c.taken.GetSnapshotId()})
	return errors.Join(err, c.delete(c.cloned), os.RemoveAll(filepath.Join(c.exports[c.fs], c.copied())), c.awaitEmptyTrash(c.fs))
}

// untilDone repeats a call as the sidecars do while the work goes on.
func (b *bench) untilDone(call func(context.Context) (bool, error)) error {
	for b.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		done, err := call(ctx)
		cancel()
		if code := status.Code(err); code != codes.OK && code != codes.Aborted && code != codes.DeadlineExceeded {
			return err
		}
		if done {
			return nil
		}
	}
	return b.ctx.Err()
}

func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

// fillForCopy makes one large and many small files, on the server's own disk.
func fillForCopy(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "big"), pattern(bigFile), 0o666); err != nil {
		return err
	}
	content := pattern(smallFile)
	for i := range smallFiles {
		sub := filepath.Join(dir, fmt.Sprintf("dir-%d", i/500))
		if i%500 == 0 {
			if err := os.Mkdir(sub, 0o777); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), content, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// pattern has no zero bytes, which a copy could leave out.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i%255 + 1)
	}
	return b
}
