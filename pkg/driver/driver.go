// Package driver serves the CSI: it validates requests, calls the store or the mounter,
// and maps their errors to codes. It does not use the Kubernetes API.
package driver

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/store"
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

// Config of a Driver.
type Config struct {
	// Name as in CSIDriver objects and StorageClasses.
	Name    string
	Version string
	Mode    Mode
	// NodeID and Mounter are needed for the Node service.
	NodeID  string
	Mounter nfsmount.Mounter
	// OwnMounts is the directory below which this process itself mounts exports.
	OwnMounts string
	// Volumes is needed for the Controller service.
	Volumes *store.Store
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
	csi.RegisterIdentityServer(s, &identity{name: d.cfg.Name, version: d.cfg.Version, hasController: d.cfg.Mode.HasController()})
	if d.cfg.Mode.HasController() {
		csi.RegisterControllerServer(s, &controller{volumes: d.cfg.Volumes})
		csi.RegisterGroupControllerServer(s, &groupController{volumes: d.cfg.Volumes})
	}
	if d.cfg.Mode.HasNode() {
		csi.RegisterNodeServer(s, &node{
			id: d.cfg.NodeID, mounter: d.cfg.Mounter, ephemeral: d.cfg.Ephemeral,
			publisher: publisher{mounter: d.cfg.Mounter, own: d.cfg.OwnMounts},
		})
	}
}
