package store

import (
	"io/fs"
	"os"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// An NFS client believes for up to a minute what it has once seen in a directory
// (acdirmax in nfs(5)), and another controller may have changed it since. What a
// call asks the server to do, the server decides by what is there; that nothing
// is there the share's mount never says by memory. What a call decides by itself
// because something is there, it must look at first. With NFSv3 even that shows
// only what has changed since the last tick of the server's clock.

// look makes the kernel ask the server about the directory, so that what is
// looked up in it next is what is there. Directories on the way to a volume are
// opened, which does the same; the export's own is open all the time.
func look(dir *os.Root) error {
	return fsat.WithFD(dir, fsat.Revalidate)
}

// directoryNow is directoryThere, but not by memory.
func directoryNow(root *os.Root, subDir string) (bool, fs.FileInfo, error) {
	if err := look(root); err != nil {
		return false, nil, err
	}
	return directoryThere(root, subDir)
}
