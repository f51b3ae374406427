package sanity

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nfs-csi/nfs-csi/pkg/driver"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/rpc"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// fake serves the whole driver in this process, but for the mounts, which are
// symlinks to directories here: no root and no NFS is needed.
func fake(t *testing.T) subject {
	t.Helper()
	export, dir := volume.Export{Server: "nfs.test", Share: "/export"}, t.TempDir()
	mounter := nfsmounttest.NewFake()
	exported := filepath.Join(dir, "export")
	mkdir(t, exported)
	mounter.AddExport(export, exported)

	ctx, stop := context.WithCancel(t.Context())
	shares, err := share.New(ctx, share.Config{Mounter: mounter, Dir: filepath.Join(dir, "mounts"), IdleTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := store.New(ctx, store.Config{Shares: shares, ReclaimWorkers: 4, CopyWorkers: 4})
	if err != nil {
		t.Fatal(err)
	}
	d, err := driver.New(driver.Config{
		Name: "nfs.csi.internal", Version: "test", Mode: driver.ModeAll, NodeID: "node-1", Mounter: mounter, Volumes: volumes,
	})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "csi.sock")
	server, err := rpc.New(ctx, rpc.Config{
		Endpoint: socket, Register: d.Register, Metrics: prometheus.NewRegistry(), DrainTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		mustBeClean(t, "fake", exported)
		stop()
		closing := context.WithoutCancel(ctx)
		if err := errors.Join(<-ended, volumes.Close(closing), shares.Close(closing)); err != nil {
			t.Error(err)
		}
	})
	return subject{name: "fake", address: "unix://" + socket, export: export}
}
