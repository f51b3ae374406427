package capacity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

const (
	driverLabel    = "csi.storage.k8s.io/drivername"
	managedByLabel = "csi.storage.k8s.io/managed-by"

	// The external-provisioner's, so that each can take over from the other.
	managedBy = "external-provisioner"

	namePrefix = "csisc-"
)

// managerOf is the manager label of the objects of a single node, or of the whole
// cluster. It is external-provisioner's for names of every length, which shortens those
// that would be longer than a label's value: managedBy gives way to its hash, and where
// that is not enough, the node's name to the hash of all.
func managerOf(node string) string {
	if node == "" {
		return managedBy
	}
	manager := managedBy + "-" + node
	if len(manager) <= validation.LabelValueMaxLength {
		return manager
	}
	if room := validation.LabelValueMaxLength - len("-12345678-") - len(node); room > 0 {
		return managedBy[:room] + "-" + shortHash(managedBy) + "-" + node
	}
	return managedBy + "-" + shortHash(manager)
}

// shortHash has eight hexadecimal digits.
func shortHash(text string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(text)) // never fails
	return fmt.Sprintf("%08x", hash.Sum32())
}

// target is what one object is about. A segment without keys is the whole cluster.
type target struct {
	class   string
	segment plan.Segment
}

// key identifies a target; the name of a StorageClass has no slash.
func (t target) key() string { return t.class + "/" + t.segment.String() }

// targets to publish.
type targets struct {
	byKey map[string]target
	// byClass and byLabel are keys: of each class, and of the segments with each label.
	byClass map[string][]string
	byLabel map[label][]string
}

// label is one of the topology.
type label struct{ key, value string }

// add takes the target's key from its caller, which has made the segment's text once for
// all classes.
func (t targets) add(key string, one target) {
	t.byKey[key] = one
	t.byClass[one.class] = append(t.byClass[one.class], key)
	for name, value := range one.segment {
		t.byLabel[label{name, value}] = append(t.byLabel[label{name, value}], key)
	}
}

// near are the keys of the targets in a node affinity or, without one, of a class.
func (t targets) near(class string, affinity *corev1.VolumeNodeAffinity) []string {
	if affinity == nil {
		return t.byClass[class]
	}
	if affinity.Required == nil {
		return nil
	}
	var keys []string
	for _, term := range affinity.Required.NodeSelectorTerms {
		if len(term.MatchExpressions) == 0 {
			continue
		}
		// A segment in the affinity has one of these labels.
		first := term.MatchExpressions[0]
		for _, value := range first.Values {
			for _, key := range t.byLabel[label{first.Key, value}] {
				if t.byKey[key].segment.Reaches(affinity) {
					keys = append(keys, key)
				}
			}
		}
	}
	return keys
}

// desired are the targets to publish: each class of the driver in each
// segment. The scheduler does not look at claims that are bound immediately, so their
// classes are left out unless immediate is set.
func desired(driver string, immediate bool, classes []*storagev1.StorageClass, segments []plan.Segment) targets {
	distinct := map[string]plan.Segment{}
	for _, segment := range segments {
		distinct[segment.String()] = segment
	}
	wanted := targets{byKey: map[string]target{}, byClass: map[string][]string{}, byLabel: map[label][]string{}}
	for _, class := range classes {
		waits := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
		if class.Provisioner != driver || !waits && !immediate {
			continue
		}
		for text, segment := range distinct {
			wanted.add(class.Name+"/"+text, target{class: class.Name, segment: segment})
		}
	}
	return wanted
}

// targetOf returns the target of an object; ok is false for a selector that this
// package does not write.
func targetOf(object *storagev1.CSIStorageCapacity) (t target, ok bool) {
	selector := object.NodeTopology
	if selector == nil || len(selector.MatchExpressions) > 0 {
		return target{}, false
	}
	return target{class: object.StorageClassName, segment: plan.Segment(selector.MatchLabels)}, true
}

// state compares what is desired with what is published.
type state struct {
	desired map[string]target
	// current are the objects of desired targets, by key.
	current map[string]*storagev1.CSIStorageCapacity
	// obsolete are objects of other targets, and duplicates.
	obsolete []*storagev1.CSIStorageCapacity
}

func newState(desired map[string]target, objects []*storagev1.CSIStorageCapacity) state {
	s := state{desired: desired, current: map[string]*storagev1.CSIStorageCapacity{}}
	sorted := slices.SortedFunc(slices.Values(objects), func(a, b *storagev1.CSIStorageCapacity) int {
		return strings.Compare(a.Name, b.Name)
	})
	for _, object := range sorted {
		t, ok := targetOf(object)
		_, wanted := desired[t.key()]
		if _, duplicate := s.current[t.key()]; !ok || !wanted || duplicate {
			s.obsolete = append(s.obsolete, object)
			continue
		}
		s.current[t.key()] = object
	}
	return s
}

// newObject names the object after its target, so that of two that are created
// concurrently one fails.
func (p *Publisher) newObject(t target, response *csi.GetCapacityResponse) *storagev1.CSIStorageCapacity {
	sum := sha256.Sum256([]byte(p.config.DriverName + "/" + p.manager + "/" + t.key()))
	object := &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       p.config.Namespace,
			Name:            namePrefix + hex.EncodeToString(sum[:16]),
			Labels:          map[string]string{driverLabel: p.config.DriverName, managedByLabel: p.manager},
			OwnerReferences: p.config.Owners,
		},
		NodeTopology:     &metav1.LabelSelector{MatchLabels: t.segment},
		StorageClassName: t.class,
		Capacity:         resource.NewQuantity(response.GetAvailableCapacity(), resource.BinarySI),
	}
	if size := response.GetMaximumVolumeSize(); size != nil {
		object.MaximumVolumeSize = resource.NewQuantity(size.GetValue(), resource.BinarySI)
	}
	return object
}

// sameContent compares what two objects say about their target.
func sameContent(a, b *storagev1.CSIStorageCapacity) bool {
	return equality.Semantic.DeepEqual(a.Capacity, b.Capacity) && equality.Semantic.DeepEqual(a.MaximumVolumeSize, b.MaximumVolumeSize) &&
		slices.EqualFunc(a.OwnerReferences, b.OwnerReferences, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID })
}
