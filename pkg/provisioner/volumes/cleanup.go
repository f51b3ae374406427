package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/workers"
)

const (
	cleanupInterval = time.Second
	// cleanupWorkers bounds the calls of cleanups: the driver may need as long for each
	// as it is given.
	cleanupWorkers = 10

	// replayLimit is the age of an entry from which its call is not repeated without a
	// claim: it may come from a backup, and its volume be long deleted or somebody's.
	replayLimit = 24 * time.Hour
)

// cleaner finishes the unfinished volumes that no claim leads to any more.
type cleaner struct {
	config  Config
	calls   calls
	saver   *saver
	tracker *tracker
	backlog backlog
	notes   notes
}

// Run cleans up after claims and processes that are gone, until ctx ends. The caches
// must be filled.
func (c *cleaner) Run(ctx context.Context) {
	queue := workqueue.NewTyped[string]()
	defer workers.Start(ctx, queue, cleanupWorkers, func(_ context.Context, name string) { c.follow(name) })()
	tick := time.NewTicker(cleanupInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			entries := c.config.Journal.Entries()
			c.observe(now, entries)
			c.backlog.retain(entries)
			c.notes.retain(entries)
			for name := range entries {
				if c.backlog.due(name, now) {
					queue.Add(name)
				}
			}
		}
	}
}

func (c *cleaner) follow(name string) {
	if c.backlog.due(name, time.Now()) && c.tracker.busy.start(name) {
		defer c.tracker.busy.end(name)
		c.backlog.postpone(name, time.Now().Add(c.check(name)))
	}
}

// check returns the delay until the next check of this volume.
func (c *cleaner) check(name string) time.Duration {
	// Read only while no try is under way: one may have finished since the entries
	// were listed, and the volume may already be deleted.
	data := c.config.Journal.Data(name)
	if data == nil {
		return 0
	}
	ctx, cancel := context.WithCancel(c.config.Base)
	defer cancel()
	logger := klog.FromContext(ctx)
	note := c.notes.read(name, data)
	creation, err := note.creation, note.err
	if err != nil {
		// A later version may have written it, and may come back.
		logger.Error(err, "Skipped unreadable journal entry", logkeys.PV, name)
		return c.config.RetryMax
	}
	remains, err := c.remains(ctx, creation)
	if err != nil {
		logger.Error(err, "Failed to look up unfinished volume", logkeys.PV, name)
	} else if remains != plan.RemainsWanted {
		err = c.finish(ctx, name, remains)
	}
	if err == nil {
		c.config.Retries.Forget(name)
		c.backlog.succeeded(name)
		return 0
	}
	orphaned := remains == plan.RemainsOrphaned || remains == plan.RemainsElsewhere
	if orphaned && creation.Response == nil && c.backlog.failed(name) > c.config.CleanupLimit {
		c.abandon(creation, err)
		return 0
	}
	delay := c.config.Retries.When(name)
	c.report(creation.Template.Spec.ClaimRef, plan.Retried(err, delay))
	return delay
}

// abandon ends the cleanup of a volume that the driver has not answered for. A created
// volume is kept until its PersistentVolume can be saved.
func (c *cleaner) abandon(creation *plan.Creation, err error) {
	name, claim := creation.Request.GetName(), creation.Template.Spec.ClaimRef
	err = fmt.Errorf("cleanup ended after %s; volume %s may be left at CSI driver %s: %w", c.config.CleanupLimit, name, c.config.Cluster.Driver.DriverName, err)
	klog.FromContext(c.config.Base).Error(err, "Abandoned unfinished volume", logkeys.PV, name,
		logkeys.PVC, klog.KRef(claim.Namespace, claim.Name), logkeys.Since, creation.Since())
	c.config.Events.Event(claim, corev1.EventTypeWarning, "ProvisioningCleanupAbandoned", err.Error())
	c.config.Retries.Forget(name)
	c.tracker.end(creation)
}

// finish ends the entry of a volume that its claim does not need any more.
func (c *cleaner) finish(ctx context.Context, name string, remains plan.Remains) error {
	creation, err := c.tracker.recorded(name)
	if err != nil {
		return err
	}
	switch {
	case remains == plan.RemainsSaved:
		c.tracker.end(creation)
		return nil
	case creation.Response == nil && !creation.Began.IsZero() && time.Since(creation.Began) > replayLimit:
		c.report(creation.Template.Spec.ClaimRef, fmt.Errorf("volume %s was recorded at %s, more than %s ago, and is not looked for any more: delete it by hand if CSI driver %s has it",
			creation.Request.GetName(), creation.Since(), replayLimit, c.config.Cluster.Driver.DriverName))
		c.tracker.end(creation)
		return nil
	case remains == plan.RemainsElsewhere:
		return c.undo(ctx, creation)
	}
	return c.finishOrphan(ctx, creation)
}

// observe updates the metrics. Entries of unknown age count from the start of this
// process.
func (c *cleaner) observe(now time.Time, entries map[string][]byte) {
	oldest := now
	for name, data := range entries {
		began := c.notes.read(name, data).began
		if began.IsZero() {
			began = c.tracker.started
		}
		if began.Before(oldest) {
			oldest = began
		}
	}
	c.config.Metrics.entries.Set(float64(len(entries)))
	c.config.Metrics.unsaved.Set(float64(len(c.tracker.unsaved.all())))
	c.config.Metrics.oldest.Set(now.Sub(oldest).Seconds())
	c.config.Metrics.failing.Set(0)
	if c.config.Journal.Failing() {
		c.config.Metrics.failing.Set(1)
	}
}

// remains reads the caches first: most entries are of volumes that are saved.
func (c *cleaner) remains(ctx context.Context, creation *plan.Creation) (plan.Remains, error) {
	name, owner := creation.Template.Name, creation.Template.Spec.ClaimRef
	volume, err := c.config.Cluster.Volume(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	claim, err := c.config.Cluster.Claim(owner.Namespace, owner.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	if remains := c.tracker.remains(volume, claim, creation); remains == plan.RemainsSaved || remains == plan.RemainsWanted {
		return remains, nil
	}
	// Only the API server knows that there is neither.
	if volume, err = c.config.Cluster.LiveVolume(ctx, name); err != nil {
		return 0, err
	}
	if claim, err = c.config.Cluster.LiveClaim(ctx, owner.Namespace, owner.Name); err != nil {
		return 0, err
	}
	return c.tracker.remains(volume, claim, creation), nil
}

// finishOrphan saves the PersistentVolume of an orphaned volume: Kubernetes then
// applies the reclaim policy. A volume that could once have been in use is never
// deleted here.
func (c *cleaner) finishOrphan(ctx context.Context, creation *plan.Creation) error {
	name, owner := creation.Request.GetName(), creation.Template.Spec.ClaimRef
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkeys.PV, name, logkeys.PVC, klog.KRef(owner.Namespace, owner.Name))
	response, err := c.response(ctx, creation)
	if nothingMade(err) {
		logger.Info("Dropped volume of a deleted claim, which was never created", logkeys.Reason, err.Error())
		c.tracker.end(creation)
		return nil
	}
	state := controller.ProvisioningInBackground
	if err == nil {
		state, err = c.saveOrphan(ctx, creation, response)
	}
	switch {
	case err == nil:
		logger.Info("Saved volume of a deleted claim", logkeys.ReclaimPolicy, creation.Template.Spec.PersistentVolumeReclaimPolicy)
	case errors.Is(err, errHeld):
		c.report(owner, err)
	case state == controller.ProvisioningFinished:
		logger.Info("Dropped volume of a deleted claim", logkeys.Reason, err.Error())
	default:
		return fmt.Errorf("clean up after a deleted claim: %w", err)
	}
	c.tracker.end(creation)
	return nil
}

// saveOrphan leaves a volume alone that another PersistentVolume holds, and deletes a
// volume whose PersistentVolume is refused, since nothing leads to it any more.
func (c *cleaner) saveOrphan(ctx context.Context, creation *plan.Creation, response *csi.CreateVolumeResponse) (controller.ProvisioningState, error) {
	volume, state, err := c.saver.accept(ctx, creation, response)
	if err != nil {
		return state, err
	}
	if err := c.saver.checkNotHeld(volume); err != nil {
		if errors.Is(err, errHeld) {
			state = controller.ProvisioningFinished
		}
		return state, err
	}
	state, err = c.saver.save(ctx, creation, volume)
	var refused refusedError
	if !errors.As(err, &refused) {
		return state, err
	}
	owner := creation.Template.Spec.ClaimRef
	claim, readErr := c.config.Cluster.LiveClaim(ctx, owner.Namespace, owner.Name)
	if readErr != nil {
		return state, fmt.Errorf("%w; look for a claim that needs it: %w", err, readErr)
	}
	if !plan.MayDeleteUnsaved(creation.Template, claim) {
		return state, err
	}
	// For a try that knows the claim from the cache.
	c.tracker.deleted.Set(volume.Name, nil, deletedPeriod)
	return c.saver.discard(ctx, creation, volume.Spec.CSI.VolumeHandle, refused)
}

// undo deletes an unfinished volume on this node whose claim has moved to another
// node. It cannot have been used, since it never had a PersistentVolume.
func (c *cleaner) undo(ctx context.Context, creation *plan.Creation) error {
	response, err := c.response(ctx, creation)
	if nothingMade(err) {
		c.tracker.end(creation)
		return nil
	}
	if err != nil {
		return fmt.Errorf("clean up, as %w: %w", errOtherNode, err)
	}
	volume, err := creation.Volume(response)
	if err == nil {
		// A driver that creates one volume of a name for all nodes has not created a
		// second one here.
		err = c.config.Cluster.Node.CheckTopology(volume)
	}
	if err != nil {
		c.report(creation.Template.Spec.ClaimRef, fmt.Errorf("%w; nothing was deleted, and %w", err, errOtherNode))
		c.tracker.end(creation)
		return nil
	}
	state, err := c.saver.discard(ctx, creation, volume.Spec.CSI.VolumeHandle, errOtherNode)
	if state == controller.ProvisioningInBackground {
		return err
	}
	klog.FromContext(ctx).Info("Cleaned up unfinished volume", logkeys.PV, volume.Name, logkeys.Outcome, err.Error())
	c.tracker.end(creation)
	return nil
}

// response is the driver's answer to the request of an unfinished volume, which is
// repeated unless the answer is recorded: there is no other way to the handle. A
// secret that does not exist any more is tolerated.
func (c *cleaner) response(ctx context.Context, creation *plan.Creation) (*csi.CreateVolumeResponse, error) {
	if creation.Response != nil {
		return creation.Response, nil
	}
	if err := c.calls.able(); err != nil {
		return nil, err
	}
	secrets, err := c.calls.creationSecrets(ctx, creation)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	response, _, err := c.calls.create(ctx, creation, secrets)
	return response, err
}

// nothingMade reports whether the driver said that there is no volume.
func nothingMade(err error) bool {
	var failure *plan.Failure
	return errors.As(err, &failure) && failure.NothingMade()
}

// report creates an event on a claim, which may be gone.
func (c *cleaner) report(claim *corev1.ObjectReference, err error) {
	klog.FromContext(c.config.Base).Error(err, "Failed to clean up unfinished volume", logkeys.PVC, klog.KRef(claim.Namespace, claim.Name))
	c.config.Events.Event(claim, corev1.EventTypeWarning, "ProvisioningCleanupFailed", err.Error())
}
