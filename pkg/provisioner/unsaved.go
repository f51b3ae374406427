package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// errHeld is wrapped when a volume in the making is that of another PersistentVolume.
var errHeld = errors.New("another PersistentVolume is for the volume")

// unsavedError is why a volume is there without its PersistentVolume.
type unsavedError struct{ cause error }

// Error implements error. An event's message is cut at its end, where the API
// server's words are.
func (e *unsavedError) Error() string {
	return "the volume made is kept until its PersistentVolume can be saved: " + e.cause.Error()
}

// Unwrap is for errors.As.
func (e *unsavedError) Unwrap() error { return e.cause }

// refusedError is the cause when the API server does not take the PersistentVolume,
// and will not until somebody changes something.
type refusedError struct{ error }

// unsaved are the handles of volumes that the driver has made and whose
// PersistentVolumes could not be saved yet, by name. The journal has the answers.
type unsaved struct {
	mu      sync.Mutex
	handles map[string]string
}

// add is false when this very volume is there already.
func (u *unsaved) add(name, handle string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.handles == nil {
		u.handles = map[string]string{}
	}
	old, found := u.handles[name]
	u.handles[name] = handle
	return !found || old != handle
}

func (u *unsaved) forget(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.handles, name)
}

func (u *unsaved) has(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, found := u.handles[name]
	return found
}

func (u *unsaved) all() map[string]string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.handles)
}

// keep leaves a volume that could not be saved where it is: the next try, also that
// of another process, saves it without asking the driver again.
func (s *session) keep(ctx context.Context, creation *plan.Creation, cause error) (controller.ProvisioningState, error) {
	if err := s.noteMade(ctx, creation); err != nil {
		klog.FromContext(ctx).Error(err, "If this process dies, the driver will be asked for the volume again", logPV, creation.Request.GetName())
	}
	return controller.ProvisioningInBackground, &unsavedError{cause}
}

func (s *session) noteMade(ctx context.Context, creation *plan.Creation) error {
	name := creation.Request.GetName()
	if !s.unsaved.add(name, creation.Handle()) {
		return nil
	}
	data, err := creation.Store()
	if err != nil {
		return err
	}
	return s.journal.Amend(ctx, name, data)
}

// made is a volume that an earlier try, or an earlier process, could not save; nil
// for none.
func (s *session) made(name string) *plan.Creation {
	if !s.unsaved.has(name) {
		return nil
	}
	creation, err := plan.RestoreCreation(s.journal.Entry(name))
	if err != nil || creation.Made == nil {
		return nil
	}
	return creation
}

// unmake has the driver asked again for a volume that it has deleted, or is about to.
func (s *session) unmake(ctx context.Context, name string) error {
	creation := s.made(name)
	if creation == nil {
		return nil
	}
	creation.Made = nil
	data, err := creation.Store()
	if err != nil {
		return err
	}
	s.unsaved.forget(name)
	return s.journal.Amend(ctx, name, data)
}

// saveMade saves a volume that was made in an earlier try, unless a PersistentVolume
// has got hold of it in the meantime: somebody may have helped themselves.
func (s *session) saveMade(ctx context.Context, creation *plan.Creation) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	volume, state, err := s.judge(ctx, creation, creation.Made)
	if err != nil {
		return nil, state, err
	}
	if err := s.refuseHeld(volume); err != nil {
		return nil, controller.ProvisioningInBackground, err
	}
	state, err = s.save(ctx, creation, volume)
	return volume, state, err
}

// refuseHeld looks at the cache: it has every PersistentVolume that there was when
// this process began to work.
func (s *session) refuseHeld(volume *corev1.PersistentVolume) error {
	others, err := s.volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	source := volume.Spec.CSI
	for _, other := range others {
		if other.Name == volume.Name || s.isElsewhere(other) || !s.migration.Same(klog.Background(), other, source.Driver, source.VolumeHandle) {
			continue
		}
		if s.deleted.has(other.Name) {
			return fmt.Errorf("PersistentVolume %s, which is for the same volume, is being deleted", other.Name)
		}
		return fmt.Errorf("%w that CSI driver %s made for this claim, %s: it is not given to both", errHeld, source.Driver, other.Name)
	}
	return nil
}
