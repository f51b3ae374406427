package parity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// handlePrefix precedes a volume's name in its handle.
const handlePrefix = "id-of-"

// driver is a CSI driver that follows a script and notes what it is asked.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	script script
	// act performs the steps of a rule.
	act    func([]step)
	server *grpc.Server

	mu       sync.Mutex
	room     int64
	made     map[string]*csi.Volume              // by name
	requests map[string]*csi.CreateVolumeRequest // by name: those that have made volumes
	counts   map[string]int                      // of calls, by method and volume
	calls    map[string][]call                   // by the volume's name
	identity map[string]bool                     // methods that are not about volumes
}

// call is a request and its result, or several in a row that are the same.
type call struct {
	Method  string `json:"method"`
	Code    string `json:"code"`
	Times   int    `json:"times,omitempty"`
	Request any    `json:"request"`
}

func (c call) equal(other call) bool {
	return c.Method == other.Method && c.Code == other.Code && sameJSON(c.Request, other.Request)
}

func sameJSON(a, b any) bool {
	first, err := json.Marshal(a)
	second, errB := json.Marshal(b)
	return err == nil && errB == nil && bytes.Equal(first, second)
}

func newDriver(s script, act func([]step)) *driver {
	const room = 100 << 30
	return &driver{
		script: s, act: act, room: room, made: map[string]*csi.Volume{}, requests: map[string]*csi.CreateVolumeRequest{},
		counts: map[string]int{}, calls: map[string][]call{}, identity: map[string]bool{},
	}
}

func (d *driver) serve(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	d.server = grpc.NewServer(grpc.UnaryInterceptor(d.note), grpc.WaitForHandlers(true))
	csi.RegisterIdentityServer(d.server, d)
	csi.RegisterControllerServer(d.server, d)
	csi.RegisterNodeServer(d.server, d)
	go func() { _ = d.server.Serve(listener) }()
	return nil
}

// note keeps each call, in the order of the answers.
func (d *driver) note(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	answer, err := handle(ctx, request)
	code := status.Code(err).String()
	if ctx.Err() != nil {
		code = "caller gone"
	}
	var volume string
	switch r := request.(type) {
	case *csi.CreateVolumeRequest:
		volume = r.GetName()
	case *csi.DeleteVolumeRequest:
		volume = strings.TrimPrefix(r.GetVolumeId(), handlePrefix)
	case *csi.GetCapacityRequest:
		volume = capacityCalls
	default:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.identity[method] = true
		return answer, err
	}
	text, marshalErr := protojson.Marshal(request.(proto.Message))
	if marshalErr != nil {
		return nil, marshalErr
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[volume] = append(d.calls[volume], call{Method: method, Code: code, Times: 1, Request: plain})
	return answer, err
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.script.Name, VendorVersion: "1"}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if d.script.Topology {
		services = append(services, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	response := &csi.GetPluginCapabilitiesResponse{}
	for _, service := range services {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: service}},
		})
	}
	return response, nil
}

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	names := d.script.Capabilities
	if !d.script.Unable {
		names = append([]string{"CREATE_DELETE_VOLUME"}, names...)
	}
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, name := range names {
		value, found := csi.ControllerServiceCapability_RPC_Type_value[name]
		if !found {
			return nil, status.Errorf(codes.Internal, "CSI has no capability %q", name)
		}
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_Type(value)}},
		})
	}
	return response, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "node", AccessibleTopology: &csi.Topology{Segments: d.script.Place}}, nil
}

func (d *driver) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	rule, err := d.accept("CreateVolume", request.GetName(), d.script.Create, request)
	if err != nil {
		return nil, err
	}
	var volume *csi.Volume
	if !rule.Unmade {
		volume = d.make(request)
	}
	d.act(rule.Steps)
	time.Sleep(rule.Pause.Duration)
	if rule.Code != "" {
		return nil, scripted(rule.Code)
	}
	if rule.Empty {
		return &csi.CreateVolumeResponse{}, nil
	}
	volume, err = replaced(volume, rule.Answer)
	return &csi.CreateVolumeResponse{Volume: volume}, err
}

// accept counts a call and returns the rule for it.
func (d *driver) accept(method, volume string, rules []rule, request *csi.CreateVolumeRequest) (rule, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := method + " " + volume
	d.counts[key]++
	if request != nil {
		plain := proto.CloneOf(request)
		plain.Secrets = nil
		if d.made[volume] == nil {
			d.requests[volume] = plain
		} else if d.script.Strict && !proto.Equal(d.requests[volume], plain) {
			return rule{}, status.Error(codes.AlreadyExists, "the volume was made by another request")
		}
	}
	for _, r := range rules {
		if r.fits(d.counts[key]) {
			return r, nil
		}
	}
	return rule{}, nil
}

func (d *driver) make(request *csi.CreateVolumeRequest) *csi.Volume {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := request.GetName()
	if d.made[name] == nil {
		d.made[name] = &csi.Volume{
			VolumeId:      handlePrefix + name,
			CapacityBytes: request.GetCapacityRange().GetRequiredBytes(),
			ContentSource: request.GetVolumeContentSource(),
			VolumeContext: map[string]string{"made": "by-driver"},
		}
	}
	return proto.CloneOf(d.made[name])
}

// replaced is the volume with fields of its JSON form replaced.
func replaced(volume *csi.Volume, fields map[string]json.RawMessage) (*csi.Volume, error) {
	if len(fields) == 0 {
		return volume, nil
	}
	text, err := protojson.Marshal(volume)
	if err != nil {
		return nil, err
	}
	object := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	maps.Copy(object, fields)
	for name, value := range fields {
		if string(value) == "null" {
			delete(object, name)
		}
	}
	if text, err = json.Marshal(object); err != nil {
		return nil, err
	}
	answer := &csi.Volume{}
	return answer, protojson.Unmarshal(text, answer)
}

func scripted(code string) error {
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == code {
			return status.Error(c, "scripted")
		}
	}
	return fmt.Errorf("gRPC has no code %q", code)
}

func (d *driver) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	name := strings.TrimPrefix(request.GetVolumeId(), handlePrefix)
	rule, err := d.accept("DeleteVolume", name, d.script.Delete, nil)
	if err != nil {
		return nil, err
	}
	if rule.Code != "" {
		return nil, scripted(rule.Code)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.made, name)
	return &csi.DeleteVolumeResponse{}, nil
}

func (d *driver) GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.room
	for _, volume := range d.made {
		left -= volume.GetCapacityBytes()
	}
	return &csi.GetCapacityResponse{AvailableCapacity: left}, nil
}

// count is the number of calls of a method that have begun.
func (d *driver) count(method string) (sum int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, n := range d.counts {
		if strings.HasPrefix(key, method+" ") {
			sum += n
		}
	}
	return sum
}

// volumes are the names of the volumes that the driver has.
func (d *driver) volumes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return sortedKeys(d.made)
}

func (d *driver) setRoom(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room = bytes
}
