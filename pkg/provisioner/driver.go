package provisioner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"github.com/kubernetes-csi/csi-lib-utils/metrics"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"
)

var (
	// ErrUnsupportedDriver is wrapped when volumes cannot be provisioned with the
	// driver on the socket.
	ErrUnsupportedDriver = errors.New("unsupported CSI driver")
	// ErrDriverChanged is wrapped when another driver has taken over the socket.
	ErrDriverChanged = errors.New("another CSI driver answers on the socket")
)

const unixScheme = "unix://"

// DriverConfig says how to reach a driver.
type DriverConfig struct {
	// Address is the path of the driver's unix socket, with or without unix://.
	Address string
	// Timeout limits each call.
	Timeout time.Duration
	// OwnNode asks the driver also where its own node is.
	OwnNode bool
	// Metrics records the calls; may be nil.
	Metrics metrics.CSIMetricsManager
}

// Driver is the connection to a CSI driver. It outlives the driver's restarts;
// before it is used again the driver must have shown that it is the same one.
type Driver struct {
	config     DriverConfig
	conn       *grpc.ClientConn
	controller csi.ControllerClient
	facts      atomic.Pointer[Facts]
	away       atomic.Bool
	lost       chan error
}

// ConnectDriver waits until the driver listens and is ready, then asks for its
// name and capabilities. It waits as long as ctx does, and ctx must last as long
// as the driver is used: reconnecting ends with it.
func ConnectDriver(ctx context.Context, config DriverConfig) (*Driver, error) {
	address, err := socketAddress(config.Address)
	if err != nil {
		return nil, err
	}
	if config.Timeout <= 0 {
		return nil, fmt.Errorf("timeout of CSI calls is %s, must be positive", config.Timeout)
	}
	config.Address = address
	d := &Driver{config: config, lost: make(chan error, 1)}
	d.conn, err = connection.Connect(ctx, address, config.Metrics,
		connection.WithTimeout(0), // the driver may start later than we do
		connection.OnConnectionLoss(func(context.Context) bool { return d.readmit(ctx) }))
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver at %s: %w", address, err)
	}
	d.controller = csi.NewControllerClient(d.conn)
	facts, err := readFacts(ctx, d.conn, config)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("CSI driver at %s: %w", address, err), d.conn.Close())
	}
	d.facts.Store(facts)
	return d, nil
}

// Close ends the connection.
func (d *Driver) Close() error { return d.conn.Close() }

// Facts are what the driver last said of itself.
func (d *Driver) Facts() Facts { return *d.facts.Load() }

// Lost delivers at most one error: why the driver must not be used any longer.
func (d *Driver) Lost() <-chan error { return d.lost }

// CreateVolume calls the driver, for no longer than the configured timeout.
func (d *Driver) CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return call(ctx, d, csi.Controller_CreateVolume_FullMethodName, d.controller.CreateVolume, request)
}

// DeleteVolume calls the driver, for no longer than the configured timeout.
func (d *Driver) DeleteVolume(ctx context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return call(ctx, d, csi.Controller_DeleteVolume_FullMethodName, d.controller.DeleteVolume, request)
}

// GetCapacity calls the driver, for no longer than the configured timeout.
func (d *Driver) GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	return call(ctx, d, csi.Controller_GetCapacity_FullMethodName, d.controller.GetCapacity, request)
}

// readmit decides whether to reconnect after the connection broke, which it asks
// the driver over a connection of its own: not one call may reach a driver with
// another name, its volumes would be mistaken for this one's.
func (d *Driver) readmit(ctx context.Context) bool {
	before := d.facts.Load()
	if before == nil {
		// Lost while starting; ConnectDriver is still asking.
		return true
	}
	d.away.Store(true)
	defer d.away.Store(false)
	after, err := d.askAgain(ctx)
	if err == nil && after.Name != before.Name {
		err = fmt.Errorf("%w: it was %q and is %q now", ErrDriverChanged, before.Name, after.Name)
	}
	if err == nil && (after.Topology != before.Topology || after.Attaches != before.Attaches || !proto.Equal(after.Place, before.Place)) {
		// What to watch for them, and whose volumes are ours, is settled when starting.
		err = fmt.Errorf("%w: %s has another topology or attaches volumes otherwise than before", ErrDriverChanged, after.Name)
	}
	if err != nil {
		select {
		case d.lost <- fmt.Errorf("CSI driver at %s: %w", d.config.Address, err):
		default:
		}
		return false
	}
	d.facts.Store(after)
	klog.FromContext(ctx).Info("CSI driver is back", logDriver, after.Name, logAddress, d.config.Address)
	return true
}

func (d *Driver) askAgain(ctx context.Context) (*Facts, error) {
	conn, err := grpc.NewClient(d.config.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return readFacts(ctx, conn, d.config)
}

func socketAddress(address string) (string, error) {
	path := strings.TrimPrefix(address, unixScheme)
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("CSI address %q is not an absolute path of a unix socket", address)
	}
	return unixScheme + path, nil
}
