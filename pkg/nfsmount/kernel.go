package nfsmount

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/keyed"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// KernelConfig bounds how long the calls of a Kernel wait for a dead server.
type KernelConfig struct {
	// DialTimeout for resolving a server's name and for its first answer.
	DialTimeout time.Duration
	// MountTimeout for a whole mount, even if the caller would wait longer.
	MountTimeout time.Duration
	// UnmountTimeout for an orderly unmount; after it the mount is detached.
	UnmountTimeout time.Duration
	// AnswerTimeout for the answer to Usage and SetMode.
	AnswerTimeout time.Duration
}

// DefaultKernelConfig suits kubelet, which waits two minutes for a mount, and
// csi-provisioner, which waits one.
func DefaultKernelConfig() KernelConfig {
	return KernelConfig{
		DialTimeout:    5 * time.Second,
		MountTimeout:   60 * time.Second,
		UnmountTimeout: 2 * time.Second,
		AnswerTimeout:  1500 * time.Millisecond,
	}
}

// Kernel mounts with the kernel of this machine, in the mount namespace of this
// process. It needs CAP_SYS_ADMIN.
type Kernel struct {
	cfg   KernelConfig
	sys   syscalls
	probe prober
	statd func(context.Context) bool

	// servers allows one mount(2) per server at a time, so that a hung server costs
	// one thread. targets keeps a target locked until an abandoned mount there has
	// been undone, or undoing it would hit the next one.
	servers keyed.Limiter[string]
	targets keyed.Limiter[string]

	flavors  flavors
	unmounts flights[struct{}]
	modes    flights[struct{}]
	usages   usages
}

// syscalls are the system calls a Kernel makes; tests put others in their place.
type syscalls struct {
	mount   func(source, target, fstype string, flags uintptr, data string) error
	unmount func(target string, flags int) error
	statfs  func(target string) (Usage, error)
	// flavor reads the mount table.
	flavor func(target string) string
}

// NewKernel checks the configuration.
func NewKernel(cfg KernelConfig) (*Kernel, error) {
	for name, d := range map[string]time.Duration{
		"dial": cfg.DialTimeout, "mount": cfg.MountTimeout, "unmount": cfg.UnmountTimeout, "answer": cfg.AnswerTimeout,
	} {
		if d <= 0 {
			return nil, fmt.Errorf("nfsmount: the %s timeout is %s, it must be positive", name, d)
		}
	}
	return &Kernel{
		cfg:   cfg,
		probe: prober{timeout: cfg.DialTimeout, rpcbind: portRPCBind},
		statd: statdRegistered,
		sys: syscalls{
			mount:   unix.Mount,
			unmount: unix.Unmount,
			statfs:  statfs,
			flavor:  flavorAt,
		},
	}, nil
}

// Mount implements Mounter.
func (k *Kernel) Mount(ctx context.Context, m Mount) error {
	if err := k.mount(ctx, m); err != nil {
		return fmt.Errorf("mount %s at %s: %w", m.Source(), m.Target, err)
	}
	return nil
}

func (k *Kernel) mount(ctx context.Context, m Mount) error {
	if !filepath.IsAbs(m.Target) {
		return fmt.Errorf("%w: target is not absolute", volume.ErrInvalid)
	}
	ctx, cancel := context.WithTimeout(ctx, k.cfg.MountTimeout)
	defer cancel()
	addr, err := k.probe.find(ctx, m.Export.Server, m.Options)
	if err != nil {
		return err
	}
	unlock, err := k.lock(ctx, m)
	if err != nil {
		return fmt.Errorf("%w: %w", volume.ErrUnreachable, err)
	}

	// The caller and the system call race to settle the outcome; the first one wins.
	var settled atomic.Bool
	done := make(chan error, 1)
	go func() {
		defer unlock()
		err := k.attempt(context.WithoutCancel(ctx), m, addr)
		if !settled.CompareAndSwap(false, true) && err == nil {
			k.undo(ctx, m)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if !settled.CompareAndSwap(false, true) {
			return <-done
		}
		return fmt.Errorf("%w: %s answers, but the mount did not complete: %w", volume.ErrUnreachable, addr, ctx.Err())
	}
}

// undo unmounts what was mounted after its caller had given up: nobody else knows of
// it. The target is still locked.
func (k *Kernel) undo(ctx context.Context, m Mount) {
	log := klog.FromContext(ctx)
	if err := k.sys.unmount(m.Target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		log.Error(err, "Failed to undo a mount that completed after its caller gave up", logkeys.Source, m.Source(), logkeys.Target, m.Target)
		return
	}
	log.Info("Undid a mount that completed after its caller gave up", logkeys.Source, m.Source(), logkeys.Target, m.Target)
}

func (k *Kernel) lock(ctx context.Context, m Mount) (unlock func(), err error) {
	unlockTarget, err := k.targets.Acquire(ctx, m.Target)
	if err != nil {
		return nil, err
	}
	unlockServer, err := k.servers.Acquire(ctx, m.Export.Server)
	if err != nil {
		unlockTarget()
		return nil, err
	}
	return func() { unlockServer(); unlockTarget() }, nil
}

// attempt tries the versions in turn. It can block for as long as the kernel waits
// for the server.
func (k *Kernel) attempt(ctx context.Context, m Mount, addr netip.Addr) error {
	versions := m.Options.version.candidates()
	var first error
	for at, more := 0, true; more; {
		v := versions[at]
		if v.major == 3 && !m.locksLocally() && !k.statd(ctx) {
			return withoutStatd(first)
		}
		err := k.withFlavor(m, v, func(sec string) error {
			return k.sys.mount(m.Source(), m.Target, v.fsType(), m.Options.flags, m.dataFor(v, addr)+sec)
		})
		if err == nil {
			return nil
		}
		if first == nil || versionError(first) {
			first = err
		}
		at, more = nextAttempt(versions, at, err)
		if more && versions[at].major == 3 && !k.version3Answers(ctx, addr) {
			break
		}
	}
	if errors.Is(first, unix.ENOENT) {
		if _, err := os.Lstat(m.Target); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the mount point does not exist: %w", err)
		}
	}
	return classify(first)
}

// withFlavor mounts with the security flavor that the kernel recently negotiated for
// the share, or lets it negotiate.
func (k *Kernel) withFlavor(m Mount, v version, mount func(sec string) error) error {
	if _, given := m.Options.value("sec"); given || v.major != 4 {
		return mount("")
	}
	if k.flavors.isSys(m.Export, time.Now()) {
		if err := mount(",sec=" + flavorSys); !flavorError(err) {
			return err
		}
		k.flavors.forget(m.Export)
	}
	err := mount("")
	if err == nil {
		k.flavors.learn(m.Export, k.sys.flavor(m.Target), time.Now())
	}
	return err
}

// version3Answers avoids the kernel's long wait, on a fallback to version 3, for
// services that many servers do not run or that a firewall hides.
func (k *Kernel) version3Answers(ctx context.Context, addr netip.Addr) bool {
	_, err := k.probe.find(ctx, addr.String(), Options{version: version{major: 3}})
	return err == nil
}

// withoutStatd returns the error of a mount that version 3 is left to, with the error of
// version 4, if that was tried.
func withoutStatd(first error) error {
	err := fmt.Errorf("%w: NFSv3 locks need rpc.statd, which does not run on this node; start it, use version 4, "+
		"or mount with nolock, whose locks other nodes do not see", volume.ErrUnsupported)
	if first == nil || versionError(first) {
		return err
	}
	return fmt.Errorf("%w; with version 3: %w", classify(first), err)
}

// dataFor is the option string for the kernel's NFS client (nfs(5), without the
// options that mount.nfs handles). clientaddr is not needed: for 4.0 the kernel finds
// its own address, and 4.1 and later do not use it. Nor are mountaddr and mountport:
// for version 3 the kernel asks the rpcbind at addr.
func (m Mount) dataFor(v version, addr netip.Addr) string {
	data := v.String()
	if _, given := m.Options.value("lock", "nolock", "local_lock"); v.major == 3 && m.LocalLocks && !given {
		data += ",nolock"
	}
	for _, opt := range m.Options.data {
		data += "," + opt
	}
	return data + ",addr=" + addr.String()
}

// locksLocally tells whether the mount needs no rpc.statd.
func (m Mount) locksLocally() bool {
	_, given := m.Options.value("nolock", "local_lock")
	return given || m.LocalLocks
}
