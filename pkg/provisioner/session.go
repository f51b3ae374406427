package provisioner

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/journal"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// session is what the library calls during one Run. The library ends the context
// of an operation as soon as it is asked to stop, but a call that the driver has
// begun is better finished: operations therefore live as long as base does.
type session struct {
	*Provisioner
	base       context.Context
	abandon    context.CancelCauseFunc // ends base
	library    *controller.ProvisionController
	journal    *journal.Journal
	protection *protection
	events     record.EventRecorder
	deletions  *deletions
	resumed    time.Time // when the journal was taken up
	// contest is nil unless claims are to be taken for a single node.
	contest *contest
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
	volume, state, err := s.provision(ctx, options)
	s.unfinished.note(options.PVName, state)
	return volume, state, s.retried(err, string(options.PVC.UID))
}

// Delete implements controller.Provisioner.
func (s *session) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	ctx, cancel := s.detach(ctx)
	defer cancel()
	err := s.deleting(ctx, volume)
	if err == nil {
		err = s.remove(ctx, volume)
	}
	return s.retried(err, volume.Name)
}

// retried adds to an error when the next try is. The library asks for the delay
// after it has reported the error.
func (s *session) retried(err error, key string) error {
	var ignored *controller.IgnoredError
	if err == nil {
		return nil
	}
	if errors.As(err, &ignored) {
		return ignored
	}
	return plan.Retried(err, plan.NextTry(s.config.RetryMin, s.config.RetryMax, s.retries.NumRequeues(key)))
}

// newSession sets up everything that must be there before anything runs. The
// library changes the scheme that every Kubernetes client of the process uses, and
// the watched objects' indexes cannot be added later.
func newSession(p *Provisioner) (*session, error) {
	s := &session{Provisioner: p}
	s.deletions = newDeletions(s.informers.Core().V1().PersistentVolumes().Informer())
	s.base, s.abandon = context.WithCancelCause(context.Background())
	claims := s.informers.Core().V1().PersistentVolumeClaims().Informer()
	if err := claims.AddIndexers(cache.Indexers{originIndex: indexOrigin, nameIndex: indexName(s.config.Naming)}); err != nil {
		return nil, err
	}
	looked := &again{SharedIndexInformer: claims}
	s.protection = newProtection(s.client, s.sources, claims.GetIndexer(), backOff[plan.Origin](s.config))
	s.protection.shared = !s.config.Node.IsZero()
	s.protection.foreign, s.protection.wants = s.foreign, s.wants
	if s.config.Node.Immediate {
		s.contest = newContest(s.Provisioner)
	}
	if _, err := claims.AddEventHandler(s.protection.handler()); err != nil {
		return nil, err
	}
	s.library = controller.NewProvisionController(
		// Events of the last operations are sent after work has ended.
		s.base,
		drainingClient{Interface: s.client, base: s.base, deletions: s.deletions},
		s.config.Driver.Capabilities().DriverName,
		s,
		s.libraryOptions(looked)...,
	)
	_, err := s.informers.Core().V1().PersistentVolumes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: looked.volumeGone})
	return s, err
}

// ShouldProvision implements controller.Qualifier. When stopping, the library
// still takes every claim that is queued; it gets through them without a call.
func (s *session) ShouldProvision(ctx context.Context, claim *corev1.PersistentVolumeClaim) bool {
	if ctx.Err() != nil || s.migration.WaitsForPlugin(claim) {
		return false
	}
	if s.config.Node.Assignment(claim, nil) == plan.AssignedHere {
		s.reportTaken(claim)
		return true
	}
	if s.contest != nil && claim.Annotations[plan.SelectedNodeAnnotation] == "" && s.wants(claim) {
		s.contest.enter(cache.MetaObjectToName(claim).String())
	}
	return false
}

// ShouldDelete implements controller.DeletionGuard, as ShouldProvision does. To
// the driver of another node a volume does not exist: deleting it there would
// succeed, and leave it behind where it is.
func (s *session) ShouldDelete(ctx context.Context, volume *corev1.PersistentVolume) bool {
	return ctx.Err() == nil && s.config.Node.Holds(s.asCSI(volume)) && !s.deletions.finished(volume)
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
