package capacity

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

const (
	driverLabel    = "csi.storage.k8s.io/drivername"
	managedByLabel = "csi.storage.k8s.io/managed-by"

	// The external-provisioner's, so that each takes over what the other left.
	managedBy = "external-provisioner"

	namePrefix = "csisc-"
)

// managerOf is who manages the objects of a single node. The node's name may be
// longer than a label's value.
func managerOf(node string) string {
	manager := managedBy + "-" + node
	if len(manager) <= validation.LabelValueMaxLength {
		return manager
	}
	sum := sha256.Sum256([]byte(node))
	return managedBy + "-" + hex.EncodeToString(sum[:16])
}

// target is one figure to be published. A segment without keys is the whole
// cluster.
type target struct {
	class   string
	segment plan.Segment
}

// key tells targets apart; no StorageClass has a slash in its name.
func (t target) key() string { return t.class + "/" + t.segment.String() }

// goal is what should be published: a figure for each class of the driver in each
// segment, by key. Claims of classes that are bound at once are not scheduled, so
// nobody asks for theirs unless immediate says so.
func goal(driver string, immediate bool, classes []*storagev1.StorageClass, segments []plan.Segment) map[string]target {
	targets := map[string]target{}
	for _, class := range classes {
		waits := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
		if class.Provisioner != driver || !waits && !immediate {
			continue
		}
		for _, segment := range segments {
			t := target{class: class.Name, segment: segment}
			targets[t.key()] = t
		}
	}
	return targets
}

// targetOf is what a published object is about; ok is false for a selector that
// nothing here writes.
func targetOf(object *storagev1.CSIStorageCapacity) (t target, ok bool) {
	selector := object.NodeTopology
	if selector == nil || len(selector.MatchExpressions) > 0 {
		return target{}, false
	}
	return target{class: object.StorageClassName, segment: plan.Segment(selector.MatchLabels)}, true
}

// assign tells for each target which object is its own. The others are obsolete:
// of targets that are no more, or second ones of a target.
func assign(targets map[string]target, objects []*storagev1.CSIStorageCapacity) (own map[string]*storagev1.CSIStorageCapacity, obsolete []*storagev1.CSIStorageCapacity) {
	own = map[string]*storagev1.CSIStorageCapacity{}
	sorted := slices.SortedFunc(slices.Values(objects), func(a, b *storagev1.CSIStorageCapacity) int {
		return strings.Compare(a.Name, b.Name)
	})
	for _, object := range sorted {
		t, ok := targetOf(object)
		_, wanted := targets[t.key()]
		if _, taken := own[t.key()]; !ok || !wanted || taken {
			obsolete = append(obsolete, object)
			continue
		}
		own[t.key()] = object
	}
	return own, obsolete
}

// figures are a driver's answer.
type figures struct {
	capacity   *resource.Quantity
	largest    *resource.Quantity
	ownerships []metav1.OwnerReference
}

// newObject is named after its target, so that two that are made at the same time
// cannot both stay.
func (p *Publisher) newObject(t target, f figures) *storagev1.CSIStorageCapacity {
	sum := sha256.Sum256([]byte(p.config.DriverName + "/" + p.manager + "/" + t.key()))
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       p.config.Namespace,
			Name:            namePrefix + hex.EncodeToString(sum[:16]),
			Labels:          map[string]string{driverLabel: p.config.DriverName, managedByLabel: p.manager},
			OwnerReferences: f.ownerships,
		},
		NodeTopology:      &metav1.LabelSelector{MatchLabels: t.segment},
		StorageClassName:  t.class,
		Capacity:          f.capacity,
		MaximumVolumeSize: f.largest,
	}
}

// upToDate tells whether an object says what it should.
func upToDate(object *storagev1.CSIStorageCapacity, f figures) bool {
	return same(object.Capacity, f.capacity) && same(object.MaximumVolumeSize, f.largest) &&
		slices.EqualFunc(object.OwnerReferences, f.ownerships, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID })
}

func same(a, b *resource.Quantity) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Cmp(*b) == 0
}
