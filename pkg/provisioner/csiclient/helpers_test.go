package csiclient

import (
	"context"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
)

const (
	driverName = "nfs.example"
	patience   = 20 * time.Second
)

func startDriver(t *testing.T, driver *drivertest.Driver) (socket string) {
	t.Helper()
	return drivertest.Serve(t, driver)
}

func connect(t *testing.T, socket string) *Client {
	t.Helper()
	return drivertest.Connected(t, func(ctx context.Context) (*Client, error) {
		return Connect(ctx, Config{Address: socket, Timeout: patience})
	})
}

// eventually fails the test when the condition does not become true in time.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	drivertest.Eventually(t, patience, what, condition)
}
