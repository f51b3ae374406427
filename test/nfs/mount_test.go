// Package nfs holds the tests that need a kernel NFS server and client. They run
// inside the lab's guest (make test-nfs).
package nfs

import (
	"os"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// unrouted is an address of TEST-NET-1 (RFC 5737), where nothing can answer.
const unrouted = "192.0.2.1"

// TestKernelKeepsTheContract: what the fake promises, the kernel does.
func TestKernelKeepsTheContract(t *testing.T) {
	if os.Getenv("LAB") == "" {
		t.Skip("needs the lab: make test-nfs")
	}
	for _, name := range []string{"LAB_EXPORT_EXT4", "LAB_EXPORT_XFS"} {
		for _, version := range []string{"vers=4.2", "vers=3"} {
			t.Run(name+" "+version, func(t *testing.T) {
				dir := os.Getenv(name)
				export, err := volume.ParseExport(os.Getenv("LAB_NFS_SERVER"), dir)
				if err != nil {
					t.Fatal(err)
				}
				kernel, err := nfsmount.NewKernel(nfsmount.DefaultKernelConfig())
				if err != nil {
					t.Fatal(err)
				}
				nfsmounttest.TestMounter(t, nfsmounttest.Fixture{
					Mounter:    kernel,
					Export:     export,
					Dir:        dir,
					DeadServer: unrouted,
					Options:    []string{version},
					Scratch:    t.TempDir(),
				})
			})
		}
	}
}
