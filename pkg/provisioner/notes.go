package provisioner

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// resume takes up what an earlier process has left in the journal, and protects what
// that is filled from.
func (s *session) resume(ctx context.Context) {
	s.resumed = time.Now()
	for name, data := range s.journal.Entries() {
		creation, err := plan.RestoreCreation(data)
		if err != nil {
			continue // followUp says so
		}
		s.protection.claim(creation.Origin, name)
		if creation.Made != nil {
			s.unsaved.add(name, creation.Handle())
		}
		owner := creation.Template.Spec.ClaimRef
		klog.FromContext(ctx).Info("Found a volume in the making", logPV, name, logPVC, klog.KRef(owner.Namespace, owner.Name),
			logVolume, creation.Handle(), logSince, creation.Since())
	}
}

// begin notes that a volume is about to be made, and keeps what it is filled from.
func (s *session) begin(ctx context.Context, creation *plan.Creation) error {
	name := creation.Request.GetName()
	creation.Began = time.Now().UTC().Truncate(time.Second)
	if earlier, err := plan.RestoreCreation(s.journal.Entry(name)); err == nil {
		creation.Began = earlier.Began
	}
	data, err := creation.Store()
	if err != nil {
		return err
	}
	if err = s.protection.hold(ctx, creation.Origin, name); err == nil {
		err = s.journal.Begin(ctx, name, data)
	}
	if err != nil && s.journal.Entry(name) == nil {
		s.protection.release(creation.Origin, name)
	}
	return err
}

// settle takes the note back when a volume is no longer in the making.
func (s *session) settle(creation *plan.Creation, state controller.ProvisioningState, err error) {
	if state == controller.ProvisioningInBackground {
		return
	}
	noted, readErr := plan.RestoreCreation(s.journal.Entry(creation.Request.GetName()))
	if err != nil && readErr == nil && !proto.Equal(noted.Request, creation.Request) {
		// The note is of an earlier try with another request, whose volume may be
		// what was in the way of this one.
		return
	}
	s.end(creation)
}

func (s *session) end(creation *plan.Creation) {
	name := creation.Request.GetName()
	s.unsaved.forget(name)
	s.journal.End(name)
	s.protection.release(creation.Origin, name)
}

// deleting takes the note back of a volume that is about to be deleted: that it has
// a PersistentVolume tells that it was saved, which nobody can see any more once it
// is gone. The process that saved it has died before it took the note back.
func (s *session) deleting(ctx context.Context, volume *corev1.PersistentVolume) error {
	if err := s.endSaved(ctx, volume); err != nil {
		return err
	}
	for name, handle := range s.unsaved.all() {
		if !s.migration.Same(klog.FromContext(ctx), volume, s.config.Driver.Capabilities().DriverName, handle) {
			continue
		}
		if !s.busy.start(name) {
			return errBusy
		}
		err := s.unmake(ctx, name)
		s.busy.end(name)
		if err != nil {
			return err
		}
	}
	return nil
}

// endSaved returns when the note is out of the journal, if it was of this volume.
func (s *session) endSaved(ctx context.Context, volume *corev1.PersistentVolume) error {
	name := volume.Name
	if s.journal.Entry(name) == nil || !s.busy.start(name) {
		return nil // a try makes it anew
	}
	defer s.busy.end(name)
	creation, err := plan.RestoreCreation(s.journal.Entry(name))
	if err != nil {
		return nil // it is left as it is
	}
	if volume.DeletionTimestamp != nil {
		// The cache does not have what tells who saved it.
		if volume, err = s.liveVolume(ctx, name); err != nil {
			return err
		}
	}
	if s.config.Node.Abandoned(s.staying(volume), nil, creation.Template) != plan.RemainsSaved {
		return nil
	}
	if err := s.journal.Remove(ctx, name); err != nil {
		return fmt.Errorf("volume %s was saved: %w", name, err)
	}
	s.end(creation)
	return nil
}
