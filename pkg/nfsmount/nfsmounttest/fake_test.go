package nfsmounttest_test

import (
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestFakeKeepsTheContract(t *testing.T) {
	export := volume.Export{Server: "nfs.test", Share: "/export"}
	fake, dir := nfsmounttest.NewFake(), t.TempDir()
	fake.AddExport(export, dir)
	nfsmounttest.TestMounter(t, nfsmounttest.Fixture{
		Mounter: fake, Export: export, Dir: dir, DeadServer: "dead.test", Scratch: t.TempDir(),
	})
}
