// Package driver serves the CSI: it validates requests, calls the store or the mounter,
// and maps their errors to codes. It does not use the Kubernetes API.
package driver

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Mode selects the services of a process beside Identity.
type Mode string

// The modes, as values of --mode.
const (
	ModeController Mode = "controller"
	ModeNode       Mode = "node"
	ModeAll        Mode = "all"
)

// HasController tells whether the mode includes the Controller service.
func (m Mode) HasController() bool { return m == ModeController || m == ModeAll }

// HasNode tells whether the mode includes the Node service.
func (m Mode) HasNode() bool { return m == ModeNode || m == ModeAll }

// Volumes is what the Controller service needs of store.Store.
type Volumes interface {
	Snapshots
	Groups
	Create(ctx context.Context, req store.CreateRequest) (store.Created, error)
	Delete(ctx context.Context, id volume.ID, mountOptions []string) error
	Exists(ctx context.Context, id volume.ID, mountOptions []string) error
	Get(ctx context.Context, id volume.ID, mountOptions []string) (store.Created, error)
	List(ctx context.Context, limit int, token string) (inventory.Page, error)
	Expand(ctx context.Context, id volume.ID, size store.SizeRange, mountOptions []string) (int64, error)
	Modify(ctx context.Context, id volume.ID, change volume.Mutable, mountOptions []string) error
	Capacity(ctx context.Context, export volume.Export, mountOptions []string) (int64, error)
	Health(ctx context.Context, id volume.ID, mountOptions []string) ([]inventory.Condition, error)
	ListHealth(ctx context.Context, limit int, token string) (inventory.HealthPage, error)
}

// Mounter is what the Node service needs of nfsmount.Mounter.
type Mounter interface {
	Mount(ctx context.Context, m nfsmount.Mount) error
	Unmount(ctx context.Context, target string) error
	Mounts(ctx context.Context) ([]nfsmount.Entry, error)
	MountAt(ctx context.Context, target string) (e nfsmount.Entry, mounted bool, err error)
	Usage(ctx context.Context, e nfsmount.Entry) (nfsmount.Usage, error)
	SetMode(ctx context.Context, e nfsmount.Entry, mode volume.Mode) error
}

// Config of a Driver.
type Config struct {
	// Name as in CSIDriver objects and StorageClasses.
	Name    string
	Version string
	Mode    Mode
	// NodeID and Mounter are needed for the Node service.
	NodeID  string
	Mounter Mounter
	// OwnMounts is the directory below which this process itself mounts exports.
	OwnMounts string
	// Volumes is needed for the Controller service.
	Volumes Volumes
	// Ephemeral is nil where inline volumes are refused.
	Ephemeral *Ephemeral
}

// maxNodeID is what the CSI spec allows for node_id.
const maxNodeID = 256

func (c Config) validate() error {
	// CSI spec, GetPluginInfoResponse.name: a domain name of up to 63 characters.
	name := regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9._]{0,61}[a-zA-Z0-9])?$`)
	switch {
	case !name.MatchString(c.Name):
		return fmt.Errorf("driver name %q is not a domain name of at most 63 characters", c.Name)
	case c.Version == "":
		return errors.New("no version")
	case !c.Mode.HasController() && !c.Mode.HasNode():
		return fmt.Errorf("mode %q, must be one of controller, node, all", c.Mode)
	case c.Mode.HasController() && c.Volumes == nil:
		return errors.New("the controller needs a store")
	case c.Mode.HasNode() && (c.NodeID == "" || len(c.NodeID) > maxNodeID):
		return fmt.Errorf("the node ID must have 1 to %d bytes, it has %d", maxNodeID, len(c.NodeID))
	case c.Mode.HasNode() && c.Mounter == nil:
		return errors.New("the node needs a mounter")
	}
	if c.Ephemeral != nil {
		_, err := c.Ephemeral.parse()
		return err
	}
	return nil
}

// Driver is the CSI services of one process.
type Driver struct {
	cfg Config
}

// New checks the configuration.
func New(cfg Config) (*Driver, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("driver: %w", err)
	}
	return &Driver{cfg: cfg}, nil
}

// Register adds the services to a gRPC server.
func (d *Driver) Register(s grpc.ServiceRegistrar) {
	csi.RegisterIdentityServer(s, &identity{cfg: d.cfg})
	if d.cfg.Mode.HasController() {
		csi.RegisterControllerServer(s, &controller{volumes: d.cfg.Volumes})
		csi.RegisterGroupControllerServer(s, &groupController{groups: d.cfg.Volumes})
	}
	if d.cfg.Mode.HasNode() {
		csi.RegisterNodeServer(s, newNode(d.cfg))
	}
}
