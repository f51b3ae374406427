package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// benchPublish: NodePublishVolume beside mount(2) of a server that is mounted
// already, NodeUnpublishVolume beside umount2(2); also with many NFS mounts on
// the node.
func benchPublish(b *bench) error {
	v, err := b.create("published", "xfs")
	if err != nil {
		return err
	}
	if err := b.benchPublishOn(v, "idle-node"); err != nil {
		return err
	}
	held, err := b.hold(v)
	if err != nil {
		return err
	}
	err = b.benchPublishOn(v, fmt.Sprintf("%d-mounts", b.mounts))
	for _, target := range held {
		err = errors.Join(err, unix.Unmount(target, 0))
	}
	return err
}

func (b *bench) benchPublishOn(v *csi.Volume, node string) error {
	for _, p := range parallels {
		raw, err := b.targets(b.rounds)
		if err != nil {
			return err
		}
		// kubelet makes the directory above the target, and the plugin makes and
		// removes the target.
		pods, err := os.MkdirTemp(b.dir, "pods-")
		if err != nil {
			return err
		}
		target := func(i int) string { return filepath.Join(pods, fmt.Sprint(i)) }
		err = b.beside(p.n, b.rounds, operation{
			name:      b.name("node-publish/" + node + "/" + p.name),
			floor:     func(i int) error { return b.mount(b.onDisk(v), raw[i]) },
			value:     func(i int) error { return b.publish(v, target(i)) },
			lessProbe: true,
		}, operation{
			name:      b.name("node-unpublish/" + node + "/" + p.name),
			floor:     func(i int) error { return unix.Unmount(raw[i], 0) },
			value:     func(i int) error { return b.unpublish(v, target(i)) },
			lessProbe: true,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) unpublish(v *csi.Volume, target string) error {
	_, err := b.node.NodeUnpublishVolume(b.ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: target})
	return err
}

func (b *bench) publish(v *csi.Volume, target string) error {
	_, err := b.node.NodePublishVolume(b.ctx, &csi.NodePublishVolumeRequest{
		VolumeId: v.GetVolumeId(), TargetPath: target, VolumeCapability: access, VolumeContext: v.GetVolumeContext(),
	})
	return err
}

func (b *bench) targets(n int) ([]string, error) {
	dir, err := os.MkdirTemp(b.dir, "targets-")
	if err != nil {
		return nil, err
	}
	var all []string
	for i := range n {
		all = append(all, filepath.Join(dir, fmt.Sprint(i)))
		if err := os.Mkdir(all[i], 0o755); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// hold mounts the volume many times, as other pods of the node would.
func (b *bench) hold(v *csi.Volume) ([]string, error) {
	targets, err := b.targets(b.mounts)
	if err != nil {
		return nil, err
	}
	for i, target := range targets {
		if err := b.mount(b.onDisk(v), target); err != nil {
			return targets[:i], err
		}
	}
	return targets, nil
}
