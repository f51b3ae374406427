// Package drivertest is a CSI driver for tests of its callers: it listens on a unix
// socket, tracks volumes as the CSI specification requires, and fails, blocks or
// responds wrongly when a test says so. It stores no data.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// ErrRunning is returned by Start when the driver is listening already.
var ErrRunning = errors.New("driver is listening already")

// Driver is a scripted CSI driver. Its methods may be called at any time, also while it
// serves. Volumes and recorded calls survive Stop and Start.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	mu            sync.Mutex
	name          string
	notReady      bool
	capabilities  []csi.ControllerServiceCapability_RPC_Type
	services      []csi.PluginCapability_Service_Type
	volumes       map[string]*csi.Volume // by name
	creates       []*csi.CreateVolumeRequest
	deletes       []*csi.DeleteVolumeRequest
	onCreate      CreateHook
	onDelete      DeleteHook
	capacity      int64
	capacityCalls int
	onCapacity    CapacityHook
	nodeTopology  map[string]string
	server        *grpc.Server
	served        chan error
}

// CreateHook runs in place of CreateVolume; next is the default behaviour.
type CreateHook func(ctx context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error)

// DeleteHook runs in place of DeleteVolume; next is the default behaviour.
type DeleteHook func(ctx context.Context, request *csi.DeleteVolumeRequest, next func() (*csi.DeleteVolumeResponse, error)) (*csi.DeleteVolumeResponse, error)

// CapacityHook runs in place of GetCapacity.
type CapacityHook func(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error)

// New is a driver that creates and deletes volumes.
func New(name string) *Driver {
	return &Driver{
		name:         name,
		services:     []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE},
		capabilities: []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME},
		volumes:      map[string]*csi.Volume{},
	}
}

// Start listens on a socket, which must not exist.
func (d *Driver) Start(socket string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != nil {
		return ErrRunning
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("start driver %s: %w", d.name, err)
	}
	server, served := grpc.NewServer(), make(chan error, 1)
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	go func() { served <- server.Serve(listener) }()
	d.server, d.served = server, served
	return nil
}

// Stop ends the driver like a crash: calls under way fail. The socket is removed.
func (d *Driver) Stop() error {
	d.mu.Lock()
	server, served := d.server, d.served
	d.server = nil
	d.mu.Unlock()
	if server == nil {
		return nil
	}
	server.Stop()
	return <-served
}

// Rename changes the name that the driver reports.
func (d *Driver) Rename(name string) { d.locked(func() { d.name = name }) }

// SetReady sets the response of Probe.
func (d *Driver) SetReady(ready bool) { d.locked(func() { d.notReady = !ready }) }

// SetServices replaces the plugin capabilities.
func (d *Driver) SetServices(services ...csi.PluginCapability_Service_Type) {
	d.locked(func() { d.services = services })
}

// SetCapabilities replaces the controller capabilities.
func (d *Driver) SetCapabilities(capabilities ...csi.ControllerServiceCapability_RPC_Type) {
	d.locked(func() { d.capabilities = capabilities })
}

// SetCapacity sets the response of GetCapacity for all segments.
func (d *Driver) SetCapacity(bytes int64) { d.locked(func() { d.capacity = bytes }) }

// SetNodeTopology sets the accessible topology of NodeGetInfo.
func (d *Driver) SetNodeTopology(segments map[string]string) {
	d.locked(func() { d.nodeTopology = segments })
}

// OnCreate sets the behaviour of CreateVolume; nil is the default.
func (d *Driver) OnCreate(hook CreateHook) { d.locked(func() { d.onCreate = hook }) }

// OnDelete sets the behaviour of DeleteVolume; nil is the default.
func (d *Driver) OnDelete(hook DeleteHook) { d.locked(func() { d.onDelete = hook }) }

// OnCapacity sets the behaviour of GetCapacity; nil is the default.
func (d *Driver) OnCapacity(hook CapacityHook) { d.locked(func() { d.onCapacity = hook }) }

// Volumes are the existing volumes, by name.
func (d *Driver) Volumes() map[string]*csi.Volume {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.volumes)
}

// Creates are the CreateVolume calls received so far.
func (d *Driver) Creates() []*csi.CreateVolumeRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*csi.CreateVolumeRequest(nil), d.creates...)
}

// Deletes are the DeleteVolume calls received so far.
func (d *Driver) Deletes() []*csi.DeleteVolumeRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*csi.DeleteVolumeRequest(nil), d.deletes...)
}

// CapacityCalls is the number of GetCapacity calls received so far.
func (d *Driver) CapacityCalls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.capacityCalls
}

func (d *Driver) locked(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// Probe implements csi.IdentityServer.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(!d.notReady)}, nil
}

// GetPluginInfo implements csi.IdentityServer.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &csi.GetPluginInfoResponse{Name: d.name}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	response := &csi.GetPluginCapabilitiesResponse{}
	for _, service := range d.services {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: service}},
		})
	}
	return response, nil
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (d *Driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, capability := range d.capabilities {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

// CreateVolume implements csi.ControllerServer.
func (d *Driver) CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	var hook CreateHook
	d.locked(func() {
		d.creates = append(d.creates, proto.CloneOf(request))
		hook = d.onCreate
	})
	next := func() (*csi.CreateVolumeResponse, error) { return d.create(request) }
	if hook != nil {
		return hook(ctx, request, next)
	}
	return next()
}

func (d *Driver) create(request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	size := request.GetCapacityRange().GetRequiredBytes()
	volume, found := d.volumes[request.GetName()]
	if !found {
		volume = &csi.Volume{
			VolumeId:      "id-of-" + request.GetName(),
			CapacityBytes: size,
			VolumeContext: maps.Clone(request.GetParameters()),
			ContentSource: proto.CloneOf(request.GetVolumeContentSource()),
		}
		d.volumes[request.GetName()] = volume
	}
	if volume.GetCapacityBytes() < size {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s exists with %d bytes", request.GetName(), volume.GetCapacityBytes())
	}
	return &csi.CreateVolumeResponse{Volume: proto.CloneOf(volume)}, nil
}

// DeleteVolume implements csi.ControllerServer.
func (d *Driver) DeleteVolume(ctx context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	var hook DeleteHook
	d.locked(func() {
		d.deletes = append(d.deletes, proto.CloneOf(request))
		hook = d.onDelete
	})
	next := func() (*csi.DeleteVolumeResponse, error) { return d.delete(request) }
	if hook != nil {
		return hook(ctx, request, next)
	}
	return next()
}

// GetCapacity implements csi.ControllerServer.
func (d *Driver) GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	var hook CapacityHook
	var declared bool
	response := &csi.GetCapacityResponse{}
	d.locked(func() {
		d.capacityCalls++
		hook, response.AvailableCapacity = d.onCapacity, d.capacity
		declared = slices.Contains(d.capabilities, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	})
	switch {
	case hook != nil:
		return hook(ctx, request)
	case !declared:
		return nil, status.Error(codes.Unimplemented, "no GET_CAPACITY")
	}
	return response, nil
}

// NodeGetInfo implements csi.NodeServer.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	response := &csi.NodeGetInfoResponse{NodeId: "node"}
	if d.nodeTopology != nil {
		response.AccessibleTopology = &csi.Topology{Segments: maps.Clone(d.nodeTopology)}
	}
	return response, nil
}

func (d *Driver) delete(request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.volumes, func(_ string, volume *csi.Volume) bool {
		return volume.GetVolumeId() == request.GetVolumeId()
	})
	return &csi.DeleteVolumeResponse{}, nil
}
