package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/onsi/ginkgo/v2"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/test/e2e/framework"
	storageframework "k8s.io/kubernetes/test/e2e/storage/framework"
	"k8s.io/kubernetes/test/e2e/storage/testsuites"
)

const driverName = "nfs.csi.internal"

// describePreprovisioned adds the specs of pre-provisioned volumes. A driver file cannot:
// upstream's driver for those has no such volumes.
func describePreprovisioned() {
	driver := preprovisioned{}
	framework.Describe("External Storage", fmt.Sprintf("[Driver: %s, pre-provisioned]", driverName), func() {
		for _, suite := range testsuites.CSISuites {
			suite := suite()
			for _, pattern := range suite.GetTestSuiteInfo().TestPatterns {
				if pattern.VolType == storageframework.PreprovisionedPV {
					storageframework.RegisterTests(suite, driver, pattern)
				}
			}
		}
	})
}

// preprovisioned is a driver whose volumes an administrator creates: each is a directory
// of $LAB_EXPORT_XFS with a PersistentVolume as docs/node.md describes it.
type preprovisioned struct{}

var _ storageframework.PreprovisionedPVTestDriver = preprovisioned{}

func (preprovisioned) GetDriverInfo() *storageframework.DriverInfo {
	return &storageframework.DriverInfo{
		Name:                 driverName,
		MaxFileSize:          storageframework.FileSizeMedium,
		SupportedFsType:      sets.NewString(""),
		SupportedMountOption: sets.NewString("relatime"),
		Capabilities: map[storageframework.Capability]bool{
			storageframework.CapPersistence:       true,
			storageframework.CapExec:              true,
			storageframework.CapFsGroup:           true,
			storageframework.CapMultiPODs:         true,
			storageframework.CapRWX:               true,
			storageframework.CapReadWriteOncePod:  true,
			storageframework.CapMultiplePVsSameID: true,
		},
	}
}

func (preprovisioned) SkipUnsupportedTest(storageframework.TestPattern) {}

func (d preprovisioned) PrepareTest(_ context.Context, f *framework.Framework) *storageframework.PerTestConfig {
	return &storageframework.PerTestConfig{Driver: d, Prefix: "nfs", Framework: f}
}

func (preprovisioned) CreateVolume(_ context.Context, _ *storageframework.PerTestConfig, _ storageframework.TestVolType) storageframework.TestVolume {
	dir, err := os.MkdirTemp(os.Getenv("LAB_EXPORT_XFS"), "preprovisioned-")
	framework.ExpectNoError(err, "create the directory of a volume")
	framework.ExpectNoError(os.Chmod(dir, 0o777))
	return directory(dir)
}

func (preprovisioned) GetPersistentVolumeSource(readOnly bool, fsType string, volume storageframework.TestVolume) (*v1.PersistentVolumeSource, *v1.VolumeNodeAffinity) {
	path, ok := volume.(directory)
	if !ok {
		framework.Failf("%T is no volume of this driver", volume)
	}
	return &v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
		Driver:       driverName,
		VolumeHandle: filepath.Base(string(path)),
		ReadOnly:     readOnly,
		FSType:       fsType,
		VolumeAttributes: map[string]string{
			"server": os.Getenv("LAB_NFS_SERVER"),
			"share":  filepath.Dir(string(path)),
			"subDir": filepath.Base(string(path)),
		},
	}}, nil
}

// directory is the absolute path of a volume on the server's own disk.
type directory string

func (d directory) DeleteVolume(context.Context) {
	ginkgo.By("removing " + string(d))
	framework.ExpectNoError(os.RemoveAll(string(d)))
}
