package main

import (
	"context"
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
	floor, err := timed(func() error {
		argv := slices.Concat(copyFloors[fs], []string{filepath.Join(raw, filepath.Base(b.onDisk(source))), filepath.Join(raw, "copied")})
		if out, err := exec.CommandContext(b.ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", argv, err, out)
		}
		return nil
	})
	if err != nil {
		return err
	}
	target := 1.0
	if b.network != roundTrip(0) {
		target = 0.25
	}
	stop := b.watchMemory()
	snapshot, err := timed(func() error { return b.snapshot(source, fs) })
	if err != nil {
		return err
	}
	clone, err := timed(func() error { return b.clone(source, fs) })
	if err != nil {
		return err
	}
	peak, err := stop()
	if err != nil {
		return err
	}
	figure(b.name("snapshot/"+fs), snapshot, floor, target)
	figure(b.name("clone/"+fs), clone, floor, target)
	report.AtMost(b.name("memory-copying/"+fs), peak, 64, "MiB")
	return nil
}

func (b *bench) snapshot(source *csi.Volume, fs string) error {
	return b.untilDone(func(ctx context.Context) (bool, error) {
		resp, err := b.controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{SourceVolumeId: source.GetVolumeId(), Name: "snapshot-" + fs})
		return resp.GetSnapshot().GetReadyToUse(), err
	})
}

func (b *bench) clone(source *csi.Volume, fs string) error {
	return b.untilDone(func(ctx context.Context) (bool, error) {
		_, err := b.controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name: "clone-" + fs, VolumeCapabilities: []*csi.VolumeCapability{access},
			CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30},
			Parameters:    map[string]string{"server": b.server, "share": b.exports[fs]},
			VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
				Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source.GetVolumeId()},
			}},
		})
		return err == nil, err
	})
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
