package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/test/lab/internal/job"
)

const (
	hostRoot = "/host" // the host's file system as the guest's root sees it
	logDir   = job.ScratchDir + "/logs"
)

// ownTop are the directories below / that the guest has of its own; everything
// else there is the host's.
var ownTop = map[string]bool{
	"dev": true, "etc": true, "export": true, "host": true, "mnt": true, "proc": true,
	"run": true, "scratch": true, "sys": true, "tmp": true, "var": true,
}

// mountPoint is one file system of the guest's own.
type mountPoint struct {
	target, fstype, data string
	flags                uintptr
}

var mountPoints = []mountPoint{
	{target: "/proc", fstype: "proc"},
	{target: "/sys", fstype: "sysfs"},
	{target: "/sys/fs/cgroup", fstype: "cgroup2"},
	{target: "/dev", fstype: "devtmpfs"},
	{target: "/dev/pts", fstype: "devpts", data: "gid=5,mode=620,ptmxmode=666"},
	{target: "/dev/shm", fstype: "tmpfs", data: "mode=1777"},
}

// enterRoot swaps the root for a tmpfs into which the host's directories are
// bound, so that all the guest writes is its own. A tmpfs, unlike hostfs, can
// also be exported, which the NFSv4 pseudo root needs.
func enterRoot(scratch string) error {
	const stage = "/mnt"
	if err := unix.Mount("root", stage, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount the new root: %w", err)
	}
	for name := range ownTop {
		if err := os.Mkdir(filepath.Join(stage, name), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("/", stage+hostRoot, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the host's root: %w", err)
	}
	if err := unix.Mount("none", stage+job.ScratchDir, "hostfs", 0, scratch); err != nil {
		return fmt.Errorf("mount the scratch directory %s: %w", scratch, err)
	}
	if err := borrowTop(stage); err != nil {
		return err
	}
	if err := unix.Chdir(stage); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the new root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	for _, m := range mountPoints {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.fstype, m.target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	// Mounts made in a pod have to reach the node, as on a node with systemd.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	return errors.Join(fillEtc(), fillVar())
}

// borrowTop gives the new root the host's top-level directories and links.
func borrowTop(stage string) error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ownTop[e.Name()] {
			continue
		}
		source, target := "/"+e.Name(), filepath.Join(stage, e.Name())
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(source)
			if err != nil {
				return err
			}
			err = os.Symlink(to, target)
			if err != nil {
				return err
			}
		case e.IsDir():
			if err := os.Mkdir(target, 0o755); err != nil {
				return err
			}
			if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("bind %s: %w", source, err)
			}
		}
	}
	return nil
}

// share binds the host's directories that the job names, where the guest does
// not see them already.
func share(j job.Job) error {
	for _, path := range j.Share {
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(hostRoot+path, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", path, err)
		}
	}
	return nil
}

// etcFiles are the files of /etc that differ from the host's.
var etcFiles = map[string]string{
	"hosts":       "127.0.0.1 localhost lab\n::1 localhost\n",
	"hostname":    "lab\n",
	"resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", // nothing listens: names fail at once
	"exports":     "",
	"nfs.conf":    "",
	"fstab":       "",
}

// fillEtc makes /etc the host's by links, but for the files of our own.
func fillEtc() error {
	entries, err := os.ReadDir(hostRoot + "/etc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, own := etcFiles[e.Name()]; own {
			continue
		}
		if err := os.Symlink(hostRoot+"/etc/"+e.Name(), "/etc/"+e.Name()); err != nil {
			return err
		}
	}
	for name, content := range etcFiles {
		if err := os.WriteFile("/etc/"+name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return unix.Sethostname([]byte("lab"))
}

func fillVar() error {
	for _, dir := range []string{
		"/var/lib/nfs/sm", "/var/lib/nfs/sm.bak", "/var/lib/nfs/v4recovery", "/var/lib/nfs/rpc_pipefs",
		"/var/log", "/var/tmp", "/run/rpcbind", "/run/lock",
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"etab", "rmtab", "state"} {
		if err := os.WriteFile("/var/lib/nfs/"+name, nil, 0o644); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", "/var/run"); err != nil {
		return err
	}
	return errors.Join(os.Chmod("/tmp", 0o1777), os.Chmod("/var/tmp", 0o1777))
}
