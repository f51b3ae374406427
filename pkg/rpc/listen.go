// Package rpc serves gRPC on unix sockets: the CSI to its callers and the
// plugin registration to kubelet.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// socketMode lets the group connect: in a pod with fsGroup, non-root sidecars reach the
// driver that way.
const socketMode = 0o660

// Listen listens on a unix socket, given as a path or a unix: URL. It removes the socket
// of a dead process. A socket that is served, or another kind of file, is an error.
func Listen(ctx context.Context, endpoint string) (net.Listener, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// socketPath reads unix:///path, unix:/path and /path.
func socketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("endpoint %q is not a unix socket, as in unix:///run/csi/socket", endpoint)
	}
	return path, nil
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("it exists and is not a socket")
	}
	d := net.Dialer{Timeout: time.Second}
	if conn, err := d.DialContext(ctx, "unix", path); err == nil {
		return errors.Join(errors.New("another process serves it"), conn.Close())
	}
	return os.Remove(path)
}
