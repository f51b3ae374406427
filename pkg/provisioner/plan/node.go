package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// SelectedNodeAnnotation is the node that a claim's volume must be reachable from. It
// is set by the scheduler, or by the node that wins an unassigned claim.
const SelectedNodeAnnotation = "volume.kubernetes.io/selected-node"

// The annotations with the provisioner of a claim, the second one in old clusters.
const (
	provisionerAnnotation    = "volume.kubernetes.io/storage-provisioner"
	oldProvisionerAnnotation = "volume.beta.kubernetes.io/storage-provisioner"
)

// ProvisionerOf is the name of a claim's provisioner, empty until it is decided.
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
	// Segment is the node's in the driver's topology. No other node may have the same:
	// it identifies the node of a volume.
	Segment Segment
	// Immediate makes the node compete for claims that no scheduler places.
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

// Placement requires a volume on this node.
func (n Node) Placement(claimName string, allowed []corev1.TopologySelectorTerm) Placement {
	return Placement{Strict: true, ClaimName: claimName, Allowed: allowed, Selected: n.Segment, Cluster: []Segment{n.Segment}}
}

// Holds reports whether a volume is on this node: whether its node affinity admits the
// node's segment. A driver that returns no accessible topology leaves a volume without
// affinity; it is on the node whose provisioner made it.
func (n Node) Holds(volume *corev1.PersistentVolume) bool {
	if n.IsZero() {
		return true
	}
	if volume.Spec.NodeAffinity == nil {
		return madeOn(volume) == n.Name
	}
	return n.Segment.Reaches(volume.Spec.NodeAffinity)
}

// Reaches reports whether a node affinity admits the segment, and does not say that every
// node can reach the volume.
func (s Segment) Reaches(affinity *corev1.VolumeNodeAffinity) bool {
	return affinity != nil && affinity.Required != nil &&
		slices.ContainsFunc(affinity.Required.NodeSelectorTerms, s.selectedBy)
}

// Elsewhere reports whether a volume is known to be on another node.
func (n Node) Elsewhere(volume *corev1.PersistentVolume) bool {
	known := volume.Spec.NodeAffinity != nil || madeOn(volume) != ""
	return known && !n.Holds(volume)
}

// madeOn is the node whose provisioner made a volume, by the identity that it has
// recorded: START-NUMBER-DRIVER-NODE. It is empty for a provisioner of the whole
// cluster, whose identity has no node.
func madeOn(volume *corev1.PersistentVolume) string {
	source := volume.Spec.CSI
	if source == nil {
		return ""
	}
	_, rest, _ := strings.Cut(source.VolumeAttributes[IdentityAttribute], "-")
	_, maker, _ := strings.Cut(rest, "-")
	node, found := strings.CutPrefix(maker, source.Driver+"-")
	if !found {
		return ""
	}
	return node
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

// Abandoned is the function of that name, extended by claims that have moved to
// another node.
func (n Node) Abandoned(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, template *corev1.PersistentVolume) Remains {
	remains := Abandoned(volume, claim, template)
	switch {
	case n.IsZero():
	case remains == RemainsSaved && n.Elsewhere(volume):
		return RemainsElsewhere
	case remains == RemainsWanted:
		if selected := claim.Annotations[SelectedNodeAnnotation]; selected != "" && selected != n.Name {
			return RemainsElsewhere
		}
	}
	return remains
}

// Fits reports whether a claim fits into a driver's capacity, by the rules of the
// scheduler.
func Fits(claim *corev1.PersistentVolumeClaim, capacity *csi.GetCapacityResponse) bool {
	if largest := capacity.GetMaximumVolumeSize(); largest != nil {
		return requestedBytes(claim) <= largest.GetValue()
	}
	return requestedBytes(claim) <= capacity.GetAvailableCapacity()
}
