package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// JailCommand is the hidden subcommand under which the lab runs itself inside
// the namespaces that Start makes.
const JailCommand = "jail"

// jailed returns a command that runs argv with the host's file system
// read-only but for scratch, and in a PID namespace of its own, so that nothing
// of it outlives it. The network namespace has no way out.
func jailed(self, scratch string, argv []string) *exec.Cmd {
	cmd := exec.Command(self, append([]string{JailCommand, scratch}, argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true, // Ctrl-C goes to the lab, which then ends the guest in order
	}
	return cmd
}

// Jail is what runs behind JailCommand, as process 1 of its namespace: it shuts
// the file system and runs argv with the file descriptors it was given.
func Jail(scratch string, argv []string) error {
	if os.Getpid() != 1 {
		return errors.New("jail: only the lab itself calls this")
	}
	if err := shut(scratch); err != nil {
		return err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	for fd := uintptr(3); fd < 3+extraFiles; fd++ {
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(fd, fmt.Sprintf("fd%d", fd)))
	}
	return onOneCPU(cpuDirs, func() error { return runAwake(cmd) })
}

func shut(scratch string) error {
	steps := []struct {
		what string
		do   func() error
	}{
		{"make mounts private", func() error {
			return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}},
		{"bind " + scratch, func() error {
			return unix.Mount(scratch, scratch, "", unix.MS_BIND, "")
		}},
		{"make / read-only", func() error {
			return unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		}},
		{"make " + scratch + " writable", func() error {
			return unix.MountSetattr(unix.AT_FDCWD, scratch, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		}},
		{"mount /proc", func() error {
			return unix.Mount("proc", "/proc", "proc", 0, "")
		}},
		// The guest's memory is a file here.
		{"mount /dev/shm", func() error {
			return unix.Mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=100%")
		}},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("jail: %s: %w", s.what, err)
		}
	}
	return nil
}
