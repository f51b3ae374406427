package plan

import (
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// SelectedNodeAnnotation is on a claim whose volume is to be where a node is: the
// scheduler's choice, or a node's own (Node.Assignment).
const SelectedNodeAnnotation = "volume.kubernetes.io/selected-node"

// The names of who makes a claim's volume, the second of old clusters.
const (
	provisionerAnnotation    = "volume.kubernetes.io/storage-provisioner"
	oldProvisionerAnnotation = "volume.beta.kubernetes.io/storage-provisioner"
)

// ProvisionerOf is the name of who is to make a claim's volume, empty as long as
// that is not decided.
func ProvisionerOf(claim *corev1.PersistentVolumeClaim) string {
	if name, found := claim.Annotations[provisionerAnnotation]; found {
		return name
	}
	return claim.Annotations[oldProvisionerAnnotation]
}

// Node is the node that a provisioner serves, where each node has a provisioner of
// its own. The zero Node is that of a provisioner for the whole cluster.
type Node struct {
	Name string
	// Segment is where the node is in the driver's topology. No other node may be
	// in the same one: it tells whose a volume is.
	Segment Segment
	// Immediate lets the node take claims that no scheduler places.
	Immediate bool
}

// IsZero is true for a provisioner of the whole cluster.
func (n Node) IsZero() bool { return n.Name == "" }

// Assignment says which node's provisioner serves a claim.
type Assignment int

const (
	// AssignedElsewhere is a claim of another node, or one that must wait.
	AssignedElsewhere Assignment = iota
	// AssignedHere is a claim of this node.
	AssignedHere
	// Unassigned is a claim for the first node that wins it.
	Unassigned
)

// Assignment decides who serves a claim. The class is only needed for claims
// without a selected node.
func (n Node) Assignment(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) Assignment {
	if n.IsZero() {
		return AssignedHere
	}
	if selected := claim.Annotations[SelectedNodeAnnotation]; selected != "" {
		if selected == n.Name {
			return AssignedHere
		}
		return AssignedElsewhere
	}
	if !n.Immediate || class == nil || class.VolumeBindingMode != nil && *class.VolumeBindingMode != storagev1.VolumeBindingImmediate {
		return AssignedElsewhere
	}
	allowed := allowedSegments(class.AllowedTopologies)
	if len(allowed) > 0 && !slices.ContainsFunc(allowed, n.Segment.within) {
		return AssignedElsewhere
	}
	return Unassigned
}

// Placement asks for a volume on this node and nowhere else.
func (n Node) Placement(claimName string, allowed []corev1.TopologySelectorTerm) Placement {
	return Placement{Strict: true, ClaimName: claimName, Allowed: allowed, Selected: n.Segment, Cluster: []Segment{n.Segment}}
}

// Holds tells whether a volume is on this node: whether its node affinity lets the
// node's segment, and so no other, use it. Of a volume without one nobody can say
// where it is.
func (n Node) Holds(volume *corev1.PersistentVolume) bool {
	if n.IsZero() {
		return true
	}
	affinity := volume.Spec.NodeAffinity
	return affinity != nil && affinity.Required != nil &&
		slices.ContainsFunc(affinity.Required.NodeSelectorTerms, n.Segment.selectedBy)
}

func (s Segment) selectedBy(term corev1.NodeSelectorTerm) bool {
	if len(term.MatchExpressions) == 0 || len(term.MatchFields) > 0 {
		return false
	}
	for _, expression := range term.MatchExpressions {
		value, found := s[expression.Key]
		if !found || expression.Operator != corev1.NodeSelectorOpIn || !slices.Contains(expression.Values, value) {
			return false
		}
	}
	return true
}

// CheckTopology refuses a volume that is not on this node, where its provisioner
// would not find it again.
func (n Node) CheckTopology(volume *corev1.PersistentVolume) error {
	if n.Holds(volume) {
		return nil
	}
	return fmt.Errorf("%w: volume %s was created on node %s, but its accessible topology does not include %s",
		ErrResponse, volume.Name, n.Name, n.Segment)
}

// Abandoned is the function of that name, but for volumes that their claims have
// in the meantime got on another node.
func (n Node) Abandoned(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, template *corev1.PersistentVolume) Remains {
	remains := Abandoned(volume, claim, template)
	switch {
	case n.IsZero():
	case remains == RemainsSaved && volume.Spec.NodeAffinity != nil && !n.Holds(volume):
		return RemainsElsewhere
	case remains == RemainsWanted:
		if selected := claim.Annotations[SelectedNodeAnnotation]; selected != "" && selected != n.Name {
			return RemainsElsewhere
		}
	}
	return remains
}

// Fits tells whether a driver that answered so when it was asked for its capacity
// has room for a claim, as the scheduler does.
func Fits(claim *corev1.PersistentVolumeClaim, room *csi.GetCapacityResponse) bool {
	if largest := room.GetMaximumVolumeSize(); largest != nil {
		return requestedBytes(claim) <= largest.GetValue()
	}
	return requestedBytes(claim) <= room.GetAvailableCapacity()
}
