package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Placement is the possible topology of a claim's volume.
type Placement struct {
	// Strict requests the segment of the selected node and no other.
	Strict bool
	// Immediate requests the segments of the whole cluster if no node is selected;
	// without it the driver chooses freely.
	Immediate bool
	// ClaimName spreads claims over the segments.
	ClaimName string
	// Allowed are the StorageClass's allowedTopologies.
	Allowed []corev1.TopologySelectorTerm
	// Selected is the segment of the node that the scheduler chose, nil for none.
	Selected Segment
	// Cluster has the segment of every node that the driver runs on.
	Cluster []Segment
}

// Requirement is the request to the driver, nil for none.
func (p Placement) Requirement() (*csi.TopologyRequirement, error) {
	allowed := allowedSegments(p.Allowed)
	requisite, err := p.requisite(allowed)
	if err != nil || len(requisite) == 0 {
		return nil, err
	}
	first := spread(p.ClaimName, len(requisite))
	if p.Selected != nil {
		first = slices.IndexFunc(requisite, p.Selected.within)
	}
	if first < 0 {
		return nil, fmt.Errorf("%w: the selected node is in %s, which its allowedTopologies exclude", ErrClass, p.Selected)
	}
	return &csi.TopologyRequirement{
		Requisite: topologies(requisite),
		Preferred: topologies(slices.Concat(requisite[first:], requisite[:first])),
	}, nil
}

func (p Placement) requisite(allowed []Segment) ([]Segment, error) {
	switch {
	case p.Selected != nil && p.Strict:
		if len(allowed) > 0 && !slices.ContainsFunc(allowed, p.Selected.within) {
			return nil, fmt.Errorf("%w: the selected node is in %s, which its allowedTopologies exclude", ErrClass, p.Selected)
		}
		return []Segment{p.Selected}, nil
	case len(allowed) > 0:
		return allowed, nil
	case p.Selected != nil:
		// Nodes with other keys have their driver upgraded just now.
		return distinct(slices.DeleteFunc(slices.Concat(p.Cluster, []Segment{p.Selected}), func(s Segment) bool {
			return !slices.Equal(s.keys(), p.Selected.keys())
		})), nil
	case !p.Immediate:
		return nil, nil
	}
	requisite := distinct(p.Cluster)
	if len(requisite) == 0 {
		return nil, fmt.Errorf("%w: no node reports a topology segment of the CSI driver; is its node plugin running?", ErrClaim)
	}
	return requisite, nil
}

// NodeSegment is a node's segment in the topology of a driver, nil if the driver does
// not report one. A missing label is an error: the node's plugin has just been
// registered, or somebody has removed the label.
func NodeSegment(driver string, registered *storagev1.CSINode, labels map[string]string) (Segment, error) {
	if registered == nil {
		return nil, nil
	}
	i := slices.IndexFunc(registered.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	if i < 0 || len(registered.Spec.Drivers[i].TopologyKeys) == 0 {
		return nil, nil
	}
	segment := Segment{}
	for _, key := range registered.Spec.Drivers[i].TopologyKeys {
		value, found := labels[key]
		if !found {
			return nil, fmt.Errorf("%w: node %s lacks the label %q of the topology of CSI driver %s", ErrClaim, registered.Name, key, driver)
		}
		segment[key] = value
	}
	return segment, nil
}

// NodeSegments are the segments of all nodes that report one. csiNode returns the
// CSINode of a name.
func NodeSegments(driver string, nodes []*corev1.Node, csiNode func(name string) (*storagev1.CSINode, error)) []Segment {
	var segments []Segment
	for _, node := range nodes {
		registered, err := csiNode(node.Name)
		if err != nil {
			continue // not registered yet, or gone
		}
		if segment, err := NodeSegment(driver, registered, node.Labels); err == nil && segment != nil {
			segments = append(segments, segment)
		}
	}
	return segments
}

// NodeAffinity restricts a volume to the nodes that can reach it; nil is every node.
func NodeAffinity(accessible []*csi.Topology) *corev1.VolumeNodeAffinity {
	var terms []corev1.NodeSelectorTerm
	for _, topology := range accessible {
		var term corev1.NodeSelectorTerm
		segments := topology.GetSegments()
		for _, key := range slices.Sorted(maps.Keys(segments)) {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{segments[key]},
			})
		}
		if len(term.MatchExpressions) > 0 {
			terms = append(terms, term)
		}
	}
	if len(terms) == 0 {
		return nil
	}
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

// placed is how a Creation was placed.
type placed struct {
	topology bool
	// byScheduler: another node can be chosen.
	byScheduler bool
}

// Place adds the placement to the request. With nodeSelected, the scheduler has chosen
// a node and can choose again.
func (c *Creation) Place(placement Placement, nodeSelected bool) error {
	requirement, err := placement.Requirement()
	if err != nil {
		return err
	}
	c.Request.AccessibilityRequirements = requirement
	c.placed = placed{topology: true, byScheduler: nodeSelected}
	return nil
}

// FailedState is CreateState, but has a claim rescheduled if the driver has no capacity
// for the node that the scheduler chose.
func (c *Creation) FailedState(err error) controller.ProvisioningState {
	if c.placed.byScheduler && status.Code(err) == codes.ResourceExhausted {
		return controller.ProvisioningReschedule
	}
	return CreateState(err)
}

func (c *Creation) nodeAffinity(made *csi.Volume) *corev1.VolumeNodeAffinity {
	if !c.placed.topology {
		return nil
	}
	return NodeAffinity(made.GetAccessibleTopology())
}
