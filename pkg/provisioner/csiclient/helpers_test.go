package csiclient

import (
	"context"
	"path/filepath"
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
	socket = filepath.Join(t.TempDir(), "csi.sock")
	if err := driver.Start(socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = driver.Stop() })
	return socket
}

func connect(t *testing.T, socket string) *Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client, err := Connect(ctx, Config{Address: socket, Timeout: patience})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = client.Close()
	})
	return client
}

// eventually fails the test when the condition does not become true in time.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
