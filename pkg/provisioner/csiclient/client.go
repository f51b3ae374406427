// Package csiclient is the connection to a CSI driver on a unix socket. It survives
// restarts of the driver, and reports when another driver has taken its place.
package csiclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"github.com/kubernetes-csi/csi-lib-utils/metrics"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

var (
	// ErrUnsupportedDriver is wrapped when the driver lacks what provisioning needs.
	ErrUnsupportedDriver = errors.New("unsupported CSI driver")
	// ErrDriverChanged is wrapped when another driver has taken over the socket.
	ErrDriverChanged = errors.New("another CSI driver answers on the socket")
)

const unixScheme = "unix://"

// Config says how to reach a driver.
type Config struct {
	// Address is the path of the driver's unix socket, with or without unix://.
	Address string
	// Timeout limits each call.
	Timeout time.Duration
	// NodeTopology also requests the topology of the driver's own node.
	NodeTopology bool
	// Metrics records the calls; may be nil.
	Metrics metrics.CSIMetricsManager
}

// Client calls a CSI driver. After a restart of the driver, calls resume once it has
// proved to be the same one.
type Client struct {
	config       Config
	conn         *grpc.ClientConn
	controller   csi.ControllerClient
	capabilities atomic.Pointer[plan.Capabilities]
	disconnected atomic.Bool
	lost         chan error
	restarted    chan struct{}
	watching     sync.WaitGroup
}

// Connect waits until the driver listens and is ready, then reads its name and
// capabilities. ctx ends the wait, and must last as long as the client is used:
// reconnecting ends with it.
func Connect(ctx context.Context, config Config) (*Client, error) {
	address, err := socketAddress(config.Address)
	if err != nil {
		return nil, err
	}
	if config.Timeout <= 0 {
		return nil, fmt.Errorf("timeout of CSI calls is %s, must be positive", config.Timeout)
	}
	config.Address = address
	c := &Client{config: config, lost: make(chan error, 1), restarted: make(chan struct{}, 1)}
	c.conn, err = connection.Connect(ctx, address, config.Metrics,
		connection.WithTimeout(0), // the driver may start later
		connection.OnConnectionLoss(func(context.Context) bool { return c.reconnect(ctx) }))
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver at %s: %w", address, err)
	}
	c.controller = csi.NewControllerClient(c.conn)
	capabilities, err := awaitCapabilities(ctx, c.conn, config)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("CSI driver at %s: %w", address, err), c.conn.Close())
	}
	c.capabilities.Store(capabilities)
	c.watching.Go(func() { c.stayConnected(ctx) })
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() error {
	err := c.conn.Close()
	c.watching.Wait()
	return err
}

// Capabilities are what the driver declared most recently.
func (c *Client) Capabilities() plan.Capabilities { return *c.capabilities.Load() }

// Lost delivers at most one error: why the driver must not be used any longer.
func (c *Client) Lost() <-chan error { return c.lost }

// Restarted delivers a value when the driver has answered again after a lost connection;
// only one for several that nobody has received.
func (c *Client) Restarted() <-chan struct{} { return c.restarted }

// CreateVolume calls the driver within the configured timeout.
func (c *Client) CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return call(ctx, c, csi.Controller_CreateVolume_FullMethodName, c.controller.CreateVolume, request)
}

// DeleteVolume calls the driver within the configured timeout.
func (c *Client) DeleteVolume(ctx context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return call(ctx, c, csi.Controller_DeleteVolume_FullMethodName, c.controller.DeleteVolume, request)
}

// GetCapacity calls the driver within the configured timeout.
func (c *Client) GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	return call(ctx, c, csi.Controller_GetCapacity_FullMethodName, c.controller.GetCapacity, request)
}

// stayConnected reconnects when the connection is lost. By itself, gRPC would wait for the
// next call.
func (c *Client) stayConnected(ctx context.Context) {
	for state := c.conn.GetState(); state != connectivity.Shutdown; state = c.conn.GetState() {
		if state == connectivity.Idle {
			c.conn.Connect()
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// reconnect decides whether to reconnect after the connection broke. It probes the
// driver over a separate connection: no call may reach a driver with another name,
// whose volumes would be mistaken for this one's.
func (c *Client) reconnect(ctx context.Context) bool {
	before := c.capabilities.Load()
	if before == nil {
		// Lost while starting; Connect still waits for an answer.
		return true
	}
	c.disconnected.Store(true)
	defer c.disconnected.Store(false)
	after, err := c.probe(ctx)
	if err == nil {
		err = checkUnchanged(before, after)
	}
	if err != nil {
		select {
		case c.lost <- fmt.Errorf("CSI driver at %s: %w", c.config.Address, err):
		default:
		}
		return false
	}
	c.capabilities.Store(after)
	select {
	case c.restarted <- struct{}{}:
	default:
	}
	klog.FromContext(ctx).Info("Reconnected to CSI driver", logkeys.Driver, after.DriverName, logkeys.Address, c.config.Address)
	return true
}

func checkUnchanged(before, after *plan.Capabilities) error {
	if after.DriverName != before.DriverName {
		return fmt.Errorf("%w: it was %q and is %q now", ErrDriverChanged, before.DriverName, after.DriverName)
	}
	if after.Volumes != before.Volumes || after.Topology != before.Topology || after.Attach != before.Attach || !proto.Equal(after.NodeTopology, before.NodeTopology) {
		// These decide at startup which informers run and which volumes are ours; a driver
		// without CREATE_DELETE_VOLUME is not called, so nothing would notice its return.
		return fmt.Errorf("%w: CREATE_DELETE_VOLUME, topology or attachment of %s has changed", ErrDriverChanged, after.DriverName)
	}
	return nil
}

func (c *Client) probe(ctx context.Context) (*plan.Capabilities, error) {
	conn, err := grpc.NewClient(c.config.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return awaitCapabilities(ctx, conn, c.config)
}

func socketAddress(address string) (string, error) {
	path := strings.TrimPrefix(address, unixScheme)
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("CSI address %q is not an absolute path of a unix socket", address)
	}
	return unixScheme + path, nil
}
