package volumes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// creator creates the volumes of claims.
type creator struct {
	config  Config
	calls   calls
	saver   *saver
	tracker *tracker
}

// Provision creates the volume of a claim and saves its PersistentVolume. An error
// before the driver is called leaves the state as it was: an earlier call may still be
// under way.
func (c *creator) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	name := options.PVName
	if !c.tracker.busy.start(name) {
		return nil, controller.ProvisioningNoChange, errBusy
	}
	defer c.tracker.busy.end(name)
	if err := c.checkStale(ctx, options.PVC, name); err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	creation, err := c.tracker.begun(name, options.PVC)
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	if creation != nil && creation.Response != nil {
		volume, state, err := c.saver.saveCreated(ctx, creation)
		c.tracker.settle(creation, state)
		return volume, state, err
	}
	if err := c.calls.able(); err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	// A volume that the driver may be creating gets the same request again: another one,
	// since a node, the class or the source has changed meanwhile, would conflict.
	isNew := creation == nil
	if isNew {
		if creation, err = c.gather(ctx, options); err != nil {
			return nil, c.failedGathering(name, err), err
		}
	}
	secrets, err := c.calls.creationSecrets(ctx, creation)
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	if isNew {
		if err := c.tracker.begin(ctx, creation); err != nil {
			return nil, controller.ProvisioningNoChange, err
		}
	}
	volume, state, err := c.create(ctx, creation, secrets, isNew)
	c.tracker.settle(creation, state)
	return volume, state, err
}

// failedGathering lets the scheduler choose again for a claim whose node is gone, but
// not while the journal has its volume: the library would forget it.
func (c *creator) failedGathering(name string, err error) controller.ProvisioningState {
	if errors.Is(err, cluster.ErrNodeGone) && c.config.Journal.Data(name) == nil {
		return controller.ProvisioningReschedule
	}
	return controller.ProvisioningNoChange
}

// create calls the driver and saves what it returns, unless an earlier call created it and
// somebody else's PersistentVolume refers to it.
func (c *creator) create(ctx context.Context, creation *plan.Creation, secrets map[string]string, isNew bool) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	response, state, err := c.calls.create(ctx, creation, secrets)
	if err != nil {
		return nil, state, err
	}
	volume, state, err := c.saver.accept(ctx, creation, response)
	if err != nil {
		return nil, state, err
	}
	if !isNew {
		if err := c.saver.checkNotHeld(volume); err != nil {
			return nil, controller.ProvisioningInBackground, err
		}
	}
	state, err = c.saver.save(ctx, creation, volume)
	return volume, state, err
}

// checkStale keeps a claim that has just been deleted from getting a volume: the
// cache can still have it after its volume is gone. The API server is only asked
// where that is likely.
func (c *creator) checkStale(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) error {
	if c.config.Journal.Data(name) != nil {
		// The volume may exist and must be finished, claim or no claim.
		return nil
	}
	if claim.DeletionTimestamp == nil && !c.tracker.wasDeleted(name) {
		return nil
	}
	live, err := c.config.Cluster.LiveClaim(ctx, claim.Namespace, claim.Name)
	switch {
	case err != nil:
		return fmt.Errorf("read the claim: %w", err)
	case live == nil || live.UID != claim.UID || live.DeletionTimestamp != nil:
		return &controller.IgnoredError{Reason: "the claim is deleted"}
	}
	return nil
}
