package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// bench is a running plugin and a mount of the same export for the floors.
type bench struct {
	options
	ctx        context.Context
	network    string
	process    *exec.Cmd
	log        *os.File
	conn       *grpc.ClientConn
	controller csi.ControllerClient
	node       csi.NodeClient
	raw        string   // the XFS export, mounted by us
	mounted    []string // by mountRaw
}

func newBench(ctx context.Context, o options, network string) (_ *bench, err error) {
	b := &bench{options: o, ctx: ctx, network: network}
	if b.dir, err = os.MkdirTemp(o.dir, "run-"); err != nil {
		return nil, err
	}
	if b.raw, err = b.mountRaw(o.exports["xfs"]); err != nil {
		return nil, err
	}
	return b, b.start()
}

// start runs the plugin and waits until it serves.
func (b *bench) start() (err error) {
	socket := filepath.Join(b.dir, "csi.sock")
	if b.log, err = os.Create(filepath.Join(b.dir, "nfsplugin.log")); err != nil {
		return err
	}
	b.process = exec.Command(b.plugin, "--mode=all", "--node-id=bench", "--endpoint=unix://"+socket, "--working-mount-dir="+filepath.Join(b.dir, "shares"))
	b.process.Stdout, b.process.Stderr = b.log, b.log
	if err := b.process.Start(); err != nil {
		return err
	}
	b.conn, err = grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return err
	}
	b.controller, b.node = csi.NewControllerClient(b.conn), csi.NewNodeClient(b.conn)
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	_, err = csi.NewIdentityClient(b.conn).Probe(ctx, &csi.ProbeRequest{})
	return err
}

func (b *bench) close() error {
	err := errors.Join(b.conn.Close(), b.process.Process.Signal(syscall.SIGTERM), b.process.Wait(), b.log.Close())
	if err != nil {
		said, _ := os.ReadFile(b.log.Name())
		err = fmt.Errorf("%w\n%s", err, said)
	}
	// A file that a client still has a delegation of is removed after the 45 seconds
	// that the client is given to return it.
	for _, target := range b.mounted {
		err = errors.Join(err, unix.Unmount(target, 0))
	}
	return errors.Join(err, b.emptyExports())
}

// emptyExports removes what a group left, on the server's own disks.
func (b *bench) emptyExports() error {
	for _, dir := range b.exports {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// mountRaw mounts an export by the system call alone, as the plugin does.
func (b *bench) mountRaw(path string) (string, error) {
	target, err := os.MkdirTemp(b.dir, "raw-")
	if err != nil {
		return "", err
	}
	b.mounted = append(b.mounted, target)
	return target, b.mount(path, target)
}

func (b *bench) mount(path, target string) error {
	// Without sec= most of the call would be the kernel's search for one.
	if err := unix.Mount(b.server+":"+path, target, "nfs4", 0, "vers=4.2,sec=sys,addr="+b.server); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

func (b *bench) name(figure string) string { return figure + "/" + b.network }

// access is what all volumes of the bench are used as.
var access = &csi.VolumeCapability{
	AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
}

func (b *bench) create(name, fs string) (*csi.Volume, error) {
	resp, err := b.controller.CreateVolume(b.ctx, &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{access},
		CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30},
		Parameters:    map[string]string{"server": b.server, "share": b.exports[fs]},
	})
	return resp.GetVolume(), err
}

func (b *bench) delete(v *csi.Volume) error {
	_, err := b.controller.DeleteVolume(b.ctx, &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
	return err
}

// onDisk is a volume's directory on the server's own disk.
func (b *bench) onDisk(v *csi.Volume) string {
	return filepath.Join(v.GetVolumeContext()["share"], v.GetVolumeContext()["subDir"])
}
