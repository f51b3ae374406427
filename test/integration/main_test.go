// Package integration tests csi-provisioner as a process against a real API
// server, with the permissions that deploy/kubernetes gives it and no more (those of
// a feature only where it is used), and two CSI drivers: a scripted one,
// and nfsplugin, whose mounts are symlinks to directories here. It needs neither
// root nor a kubelet:
//
//	KUBE_BINARY=$(lab build) CSI_PROVISIONER=bin/race/csi-provisioner NFSPLUGIN_FAKE=bin/race/nfsplugin go test ./integration/...
package integration

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/test/integration/cluster"
)

const (
	kubeBinaryEnv  = "KUBE_BINARY"
	provisionerEnv = "CSI_PROVISIONER"
	// pluginEnv is nfsplugin built with -tags fakemount.
	pluginEnv = "NFSPLUGIN_FAKE"
	// raceEnv is csi-provisioner with the race detector, for the tests of faults.
	raceEnv = "CSI_PROVISIONER_RACE"

	startTimeout = time.Minute
)

// shared is started once: tests keep out of each other's way by driver name.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	binary := os.Getenv(kubeBinaryEnv)
	if binary == "" || os.Getenv(provisionerEnv) == "" {
		// newWorld skips every test.
		return m.Run()
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var err error
	if shared, err = cluster.Start(ctx, binary); err != nil {
		fmt.Fprintln(os.Stderr, "integration: start the cluster:", err)
		return 1
	}
	code := 1
	if err := shared.Apply(ctx, deployDir); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
	} else {
		code = m.Run()
	}
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "integration: stop the cluster:", err)
		return 1
	}
	return code
}
