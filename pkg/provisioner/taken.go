package provisioner

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// reportTaken tells a claim that the name of its volume is another's. The library
// takes every PersistentVolume of that name for the claim's own, and says nothing.
func (s *session) reportTaken(claim *corev1.PersistentVolumeClaim) {
	if !s.wants(claim) {
		return
	}
	volume, err := s.volumes.Get(s.config.Naming.Name(claim.UID))
	if err == nil && plan.Taken(volume, claim) {
		s.events.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed",
			fmt.Sprintf("PersistentVolume %s exists already and is not this claim's; once it is deleted, the claim's own is made within %s", volume.Name, resyncPeriod))
	}
}
