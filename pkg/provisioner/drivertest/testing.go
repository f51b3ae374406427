package drivertest

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"
)

// Serve starts a driver until the end of the test, and returns its socket.
func Serve(t *testing.T, driver *Driver) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "csi.sock")
	if err := driver.Start(socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = driver.Stop() })
	return socket
}

// Connected returns what dial connects until the end of the test, when its context ends.
func Connected[Client io.Closer](t *testing.T, dial func(context.Context) (Client, error)) Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client, err := dial(ctx)
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

// Eventually fails the test when the condition does not become true in time.
func Eventually(t *testing.T, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
