package volumes

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/journal"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// deletedPeriod is longer than the lag of any cache.
const deletedPeriod = 10 * time.Minute

// tracker tracks unfinished volumes: in the journal, so that the next process finds
// them, and in memory.
type tracker struct {
	config  Config
	started time.Time

	// unsaved are the created volumes without a PersistentVolume.
	unsaved unsaved
	// busy are the volumes that are being worked on.
	busy busy
	// deleted are the volumes that were deleted recently, by name.
	deleted *expiring.Expiring
}

// Resume takes over the unfinished volumes of an earlier process and protects their
// origins.
func (t *tracker) Resume(ctx context.Context) {
	for name, data := range t.config.Journal.Entries() {
		creation, err := plan.RestoreCreation(data, nil) // topologies do not matter here
		if err != nil {
			continue // reported by the cleaner
		}
		t.config.Protection.Adopt(creation.Origin, name)
		if creation.Response != nil {
			t.unsaved.add(name, creation.Handle())
		}
		owner := creation.Template.Spec.ClaimRef
		klog.FromContext(ctx).Info("Found unfinished volume", logkeys.PV, name, logkeys.PVC, klog.KRef(owner.Namespace, owner.Name),
			logkeys.VolumeHandle, creation.Handle(), logkeys.Since, creation.Since())
	}
}

// recorded returns the volume that the journal has by a name. It is an error if there is
// none, or if a later version has recorded it.
func (t *tracker) recorded(name string) (*plan.Creation, error) {
	entry, err := t.config.Journal.Entry(name)
	if err != nil {
		return nil, err
	}
	return plan.RestoreCreation(entry.Data, entry.Lists)
}

// begin records that a volume is about to be created, and protects its origin.
func (t *tracker) begin(ctx context.Context, creation *plan.Creation) error {
	name := creation.Request.GetName()
	creation.Began = time.Now().UTC().Truncate(time.Second)
	data, topologies, err := creation.Store()
	if err != nil {
		return err
	}
	recorded := true
	if err = t.config.Protection.Hold(ctx, creation.Origin, name); err == nil {
		recorded, err = t.config.Journal.Begin(ctx, name, journal.Entry{Data: data, Lists: topologies})
	}
	if err != nil && t.config.Journal.Data(name) == nil {
		t.config.Protection.Release(creation.Origin, name)
	}
	if err == nil && !recorded {
		t.config.Metrics.unrecorded.Inc()
	}
	return err
}

// begun returns the volume that an earlier try or process has begun for a claim, nil if
// there is none. It has a response if only its PersistentVolume is missing.
func (t *tracker) begun(name string, claim *corev1.PersistentVolumeClaim) (*plan.Creation, error) {
	creation, err := t.recorded(name)
	if err != nil {
		return nil, nil //nolint:nilerr // there is no entry, or a later version has written it
	}
	if owner := creation.Template.Spec.ClaimRef; owner.UID != claim.UID {
		return nil, fmt.Errorf("%w: its volume name %s is that of a volume being created for claim %s/%s with UID %s; delete the claim and create it again",
			plan.ErrClaim, name, owner.Namespace, owner.Name, owner.UID)
	}
	t.config.Protection.Adopt(creation.Origin, name)
	if !t.unsaved.has(name) {
		creation.Response = nil
	}
	return creation, nil
}

// settle removes the entry of a volume that is finished.
func (t *tracker) settle(creation *plan.Creation, state controller.ProvisioningState) {
	if state != controller.ProvisioningInBackground {
		t.end(creation)
	}
}

func (t *tracker) end(creation *plan.Creation) {
	name := creation.Request.GetName()
	t.unsaved.forget(name)
	t.config.Journal.End(name)
	t.config.Protection.Release(creation.Origin, name)
}

// recordCreated adds the driver's response to the entry.
func (t *tracker) recordCreated(ctx context.Context, creation *plan.Creation) error {
	name := creation.Request.GetName()
	if !t.unsaved.add(name, creation.Handle()) {
		return nil
	}
	return t.amend(ctx, creation)
}

func (t *tracker) amend(ctx context.Context, creation *plan.Creation) error {
	data, _, err := creation.Store()
	if err != nil {
		return err
	}
	return t.config.Journal.Amend(ctx, creation.Request.GetName(), data)
}

// forgetCreated removes the driver's response from the entry of a volume that is
// deleted or about to be, so that the driver is called again.
func (t *tracker) forgetCreated(ctx context.Context, name string) error {
	if !t.unsaved.has(name) {
		return nil
	}
	// Without an entry, or with one of a later version, there is nothing to amend.
	if creation, err := t.recorded(name); err == nil {
		creation.Response = nil
		// Again after a failure: the entry in the ConfigMap may still have the response.
		if err := t.amend(ctx, creation); err != nil {
			return err
		}
	}
	t.unsaved.forget(name)
	return nil
}

// beforeDeletion removes the entry of a volume that is about to be deleted. The
// PersistentVolume proves that it was saved, and is gone afterwards; the process that
// saved it died before it could remove the entry. Until done is called, no other try gets
// from the driver a volume that somebody else's PersistentVolume is deleted with.
func (t *tracker) beforeDeletion(ctx context.Context, volume *corev1.PersistentVolume) (done func(), err error) {
	var names []string
	done = func() {
		for _, name := range names {
			t.busy.end(name)
		}
	}
	if err := t.endSaved(ctx, volume); err != nil {
		return done, err
	}
	for name, handle := range t.unsaved.all() {
		if !t.config.Cluster.Migration.Same(klog.FromContext(ctx), volume, t.config.Cluster.Driver.DriverName, handle) {
			continue
		}
		if !t.busy.start(name) {
			return done, errBusy
		}
		names = append(names, name)
		if err := t.forgetCreated(ctx, name); err != nil {
			return done, err
		}
	}
	return done, nil
}

// endSaved returns when the journal has no entry of this volume any more.
func (t *tracker) endSaved(ctx context.Context, volume *corev1.PersistentVolume) error {
	name := volume.Name
	if t.config.Journal.Data(name) == nil || !t.busy.start(name) {
		return nil // a try creates it anew
	}
	defer t.busy.end(name)
	creation, err := plan.RestoreCreation(t.config.Journal.Data(name), nil)
	if err != nil {
		return nil // of a later version, left as it is
	}
	if volume.DeletionTimestamp != nil {
		// The cache lacks the attribute that identifies the saving process.
		if volume, err = t.config.Cluster.LiveVolume(ctx, name); err != nil {
			return err
		}
	}
	if t.remains(volume, nil, creation) != plan.RemainsSaved {
		return nil
	}
	if err := t.config.Journal.Remove(ctx, name); err != nil {
		return fmt.Errorf("volume %s was saved: %w", name, err)
	}
	t.end(creation)
	return nil
}

func (t *tracker) wasDeleted(name string) bool {
	_, deleted := t.deleted.Get(name)
	return deleted
}

// remains decides what becomes of an unfinished volume. A PersistentVolume whose
// volume was deleted at the driver does not count: it is about to go, and not that of
// a volume created anew since.
func (t *tracker) remains(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, creation *plan.Creation) plan.Remains {
	if volume != nil && t.wasDeleted(volume.Name) {
		volume = nil
	}
	if volume != nil {
		volume = t.config.Cluster.AsCSI(volume)
	}
	return t.config.Cluster.Node.Abandoned(volume, claim, creation.Template)
}

// unsaved are the handles of created volumes whose PersistentVolumes could not be
// saved yet, by name. The journal has the responses.
type unsaved struct{ handles sync.Map }

// add returns false if the volume is there already.
func (u *unsaved) add(name, handle string) bool {
	old, found := u.handles.Swap(name, handle)
	return !found || old != handle
}

func (u *unsaved) forget(name string) { u.handles.Delete(name) }

func (u *unsaved) has(name string) bool {
	_, found := u.handles.Load(name)
	return found
}

func (u *unsaved) all() map[string]string {
	all := map[string]string{}
	for name, handle := range u.handles.Range {
		all[name.(string)] = handle.(string)
	}
	return all
}
