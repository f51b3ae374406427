package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	corev1 "k8s.io/api/core/v1"
)

// stored is the serialized form of a Creation. It has the names of secrets, not their
// values.
type stored struct {
	Request  json.RawMessage          `json:"request"`
	Secret   SecretRef                `json:"secret,omitzero"`
	Template *corev1.PersistentVolume `json:"volume"`
	Origin   Origin                   `json:"origin,omitzero"`
	Topology bool                     `json:"topology,omitempty"`
	Selected bool                     `json:"nodeSelected,omitempty"`
	Migrated bool                     `json:"migrated,omitempty"`
	Began    time.Time                `json:"began,omitzero"`
	Made     json.RawMessage          `json:"made,omitempty"`
}

// Names of the lists of topologies.
const (
	requisiteList = "requisite"
	preferredList = "preferred"
)

// Store serializes the Creation. The topologies of its request, of which other Creations
// have the same, are lists apart, each topology in JSON.
func (c *Creation) Store() (data []byte, topologies map[string][]string, err error) {
	request, err := protojson.Marshal(withoutTopologies(c.Request))
	if err != nil {
		return nil, nil, fmt.Errorf("store volume %s: %w", c.Request.GetName(), err)
	}
	if requirement := c.Request.GetAccessibilityRequirements(); requirement != nil {
		topologies = map[string][]string{}
		for name, list := range map[string][]*csi.Topology{requisiteList: requirement.GetRequisite(), preferredList: requirement.GetPreferred()} {
			if topologies[name], err = storeTopologies(list); err != nil {
				return nil, nil, fmt.Errorf("store topologies of volume %s: %w", c.Request.GetName(), err)
			}
		}
	}
	to := stored{
		Request: request, Secret: c.Secret, Template: c.Template, Origin: c.Origin, Topology: c.placed.topology, Selected: c.placed.byScheduler,
		Migrated: c.Migrated, Began: c.Began,
	}
	if c.Response != nil {
		if to.Made, err = protojson.Marshal(c.Response); err != nil {
			return nil, nil, fmt.Errorf("store what was made of volume %s: %w", c.Request.GetName(), err)
		}
	}
	data, err = json.Marshal(to)
	return data, topologies, err
}

// withoutTopologies shares everything else with the request.
func withoutTopologies(request *csi.CreateVolumeRequest) *csi.CreateVolumeRequest {
	if request.GetAccessibilityRequirements() == nil {
		return request
	}
	bare := &csi.CreateVolumeRequest{}
	request.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		bare.ProtoReflect().Set(field, value)
		return true
	})
	bare.AccessibilityRequirements = nil
	return bare
}

func storeTopologies(list []*csi.Topology) ([]string, error) {
	stored := make([]string, len(list))
	for i, topology := range list {
		data, err := json.Marshal(topology.GetSegments())
		if err != nil {
			return nil, err
		}
		stored[i] = string(data)
	}
	return stored, nil
}

func restoreTopologies(stored []string) ([]*csi.Topology, error) {
	var list []*csi.Topology
	for _, data := range stored {
		topology := &csi.Topology{}
		if err := json.Unmarshal([]byte(data), &topology.Segments); err != nil {
			return nil, fmt.Errorf("topology %s: %w", data, err)
		}
		list = append(list, topology)
	}
	return list, nil
}

// addTopologies restores those of a request. A version that stored them in the request did
// not store them apart.
func addTopologies(request *csi.CreateVolumeRequest, topologies map[string][]string) error {
	if len(topologies) == 0 {
		return nil
	}
	requisite, err := restoreTopologies(topologies[requisiteList])
	if err != nil {
		return err
	}
	preferred, err := restoreTopologies(topologies[preferredList])
	if err != nil {
		return err
	}
	request.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: requisite, Preferred: preferred}
	return nil
}

// RestoreCreation deserializes a Creation.
func RestoreCreation(data []byte, topologies map[string][]string) (*Creation, error) {
	var from stored
	if err := json.Unmarshal(data, &from); err != nil {
		return nil, err
	}
	request := &csi.CreateVolumeRequest{}
	// Unknown fields of a later CSI version are an error: dropping them would change
	// the request.
	if err := protojson.Unmarshal(from.Request, request); err != nil {
		return nil, err
	}
	if from.Template == nil || from.Template.Spec.CSI == nil || from.Template.Spec.ClaimRef == nil || request.GetName() == "" {
		return nil, errors.New("not a stored volume")
	}
	if err := addTopologies(request, topologies); err != nil {
		return nil, err
	}
	creation := &Creation{
		Request: request, Secret: from.Secret, Template: from.Template, Origin: from.Origin, Migrated: from.Migrated,
		SecretNamedBy: "the StorageClass as it was",
		placed:        placed{topology: from.Topology, byScheduler: from.Selected},
		Began:         from.Began,
	}
	if from.Made != nil {
		creation.Response = &csi.CreateVolumeResponse{}
		if err := protojson.Unmarshal(from.Made, creation.Response); err != nil {
			return nil, err
		}
	}
	return creation, nil
}

// BeganAt is Creation.Began of a serialized Creation.
func BeganAt(data []byte) time.Time {
	var from struct{ Began time.Time }
	if err := json.Unmarshal(data, &from); err != nil {
		return time.Time{}
	}
	return from.Began
}

// Handle is the volume's ID at the driver, empty until it is known.
func (c *Creation) Handle() string { return c.Response.GetVolume().GetVolumeId() }

// Since is Began for log entries.
func (c *Creation) Since() string {
	if c.Began.IsZero() {
		return "unknown"
	}
	return c.Began.Format(time.RFC3339)
}
