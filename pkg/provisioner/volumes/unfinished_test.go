package volumes

import (
	"testing"

	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
)

// A volume that the driver may be creating must not be forgotten because the node
// it was for has gone.
func TestNodeGoneWhileTheDriverWorks(t *testing.T) {
	var u unfinished
	if got := u.reschedule("pvc-1", cluster.ErrNodeGone); got != controller.ProvisioningReschedule {
		t.Errorf("state is %s for a volume that was never begun", got)
	}
	u.record("pvc-1", controller.ProvisioningInBackground)
	u.record("pvc-1", controller.ProvisioningNoChange)
	if got := u.reschedule("pvc-1", cluster.ErrNodeGone); got != controller.ProvisioningNoChange {
		t.Errorf("state is %s for a volume in the making", got)
	}
	u.record("pvc-1", controller.ProvisioningFinished)
	if got := u.reschedule("pvc-1", cluster.ErrNodeGone); got != controller.ProvisioningReschedule {
		t.Errorf("state is %s for a volume whose making has failed", got)
	}
}
