package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
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

// Store serializes the Creation.
func (c *Creation) Store() ([]byte, error) {
	request, err := protojson.Marshal(c.Request)
	if err != nil {
		return nil, fmt.Errorf("store volume %s: %w", c.Request.GetName(), err)
	}
	to := stored{
		Request: request, Secret: c.Secret, Template: c.Template, Origin: c.Origin, Topology: c.placed.topology, Selected: c.placed.byScheduler,
		Migrated: c.Migrated, Began: c.Began,
	}
	if c.Response != nil {
		if to.Made, err = protojson.Marshal(c.Response); err != nil {
			return nil, fmt.Errorf("store what was made of volume %s: %w", c.Request.GetName(), err)
		}
	}
	return json.Marshal(to)
}

// RestoreCreation deserializes a Creation.
func RestoreCreation(data []byte) (*Creation, error) {
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
