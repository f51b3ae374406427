package provisioner

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// session is what the library calls during one Run. The library ends the context
// of an operation as soon as it is asked to stop, but a call that the driver has
// begun is better finished: operations therefore live as long as base does.
type session struct {
	*Provisioner
	base context.Context
}

var (
	_ controller.BlockProvisioner = (*session)(nil)
	_ controller.Qualifier        = (*session)(nil)
	_ controller.DeletionGuard    = (*session)(nil)
)

// Provision implements controller.Provisioner.
func (s *session) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	ctx, cancel := s.detach(ctx)
	defer cancel()
	return s.provision(ctx, options)
}

// Delete implements controller.Provisioner.
func (s *session) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	ctx, cancel := s.detach(ctx)
	defer cancel()
	return s.remove(ctx, volume)
}

// ShouldProvision implements controller.Qualifier. When stopping, the library
// still takes every claim that is queued; it gets through them without a call.
func (s *session) ShouldProvision(ctx context.Context, _ *corev1.PersistentVolumeClaim) bool {
	return ctx.Err() == nil
}

// ShouldDelete implements controller.DeletionGuard, as ShouldProvision does.
func (s *session) ShouldDelete(ctx context.Context, _ *corev1.PersistentVolume) bool {
	return ctx.Err() == nil
}

// SupportsBlock implements controller.BlockProvisioner. The capability in the
// request lets the driver refuse, with a better reason than the library has.
func (s *session) SupportsBlock(context.Context) bool { return true }

func (s *session) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return follow(ctx, s.base)
}

// follow returns a context with ctx's values that ends with base, not with ctx.
func follow(ctx, base context.Context) (context.Context, context.CancelFunc) {
	detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(base, func() { cancel(context.Cause(base)) })
	return detached, func() {
		stop()
		cancel(context.Canceled)
	}
}
