package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// cpuDirs has a directory for every processor of the machine.
const cpuDirs = "/sys/devices/system/cpu"

// onOneCPU runs do on one processor, of those that this process may use, which no
// other guest has; where all are taken, on any. User Mode Linux has no use for two:
// its kernel and what runs in it are processes that wait for each other, at every
// system call, and on one processor they take turns about twice as fast.
func onOneCPU(dirs string, do func() error) error {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("processors: %w", err)
	}
	cpu, taken, err := takeCPU(dirs, may)
	if err != nil {
		return fmt.Errorf("processors: %w", err)
	}
	if taken == nil {
		return do()
	}
	defer taken.Close()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never back: the thread ends with the goroutine
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			result <- fmt.Errorf("processor %d: %w", cpu, err)
			return
		}
		result <- do()
	}()
	return <-result
}

// takeCPU locks the directory of a processor, until taken is closed; nil if others
// have locked all.
func takeCPU(dirs string, may unix.CPUSet) (cpu int, taken *os.File, err error) {
	for cpu := range 64 * len(may) {
		if !may.IsSet(cpu) {
			continue
		}
		dir, err := os.Open(filepath.Join(dirs, fmt.Sprintf("cpu%d", cpu)))
		if errors.Is(err, fs.ErrNotExist) { // no /sys here
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return cpu, dir, nil
		}
		dir.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return 0, nil, err
		}
	}
	return 0, nil, nil
}
