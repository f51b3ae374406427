package provisioner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// refuseStale keeps a claim that has just been deleted from getting a volume: the
// cache can still have it when its volume is gone already. The API server is only
// asked where that is likely.
func (s *session) refuseStale(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) error {
	if s.journal.Entry(name) != nil {
		// It may exist already and must be followed up, claim or no claim.
		return nil
	}
	if claim.DeletionTimestamp == nil && !s.deleted.has(name) {
		return nil
	}
	live, err := s.liveClaim(ctx, claim.Namespace, claim.Name, string(claim.UID))
	switch {
	case err != nil:
		return fmt.Errorf("find out whether the claim still exists: %w", err)
	case live == nil || live.DeletionTimestamp != nil:
		return &controller.IgnoredError{Reason: "the claim is deleted"}
	}
	return nil
}

// liveClaim asks the API server, nil when there is no claim of this UID.
func (s *session) liveClaim(ctx context.Context, namespace, name, uid string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := s.claimNamed(ctx, &corev1.ObjectReference{Namespace: namespace, Name: name})
	if err != nil || claim == nil || string(claim.UID) != uid {
		return nil, err
	}
	return claim, nil
}

// claimNamed asks the API server, nil when there is no claim of this name.
func (s *session) claimNamed(ctx context.Context, ref *corev1.ObjectReference) (*corev1.PersistentVolumeClaim, error) {
	claim, err := s.client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return claim, nil
}

// liveVolume asks the API server, nil when there is no such PersistentVolume.
func (s *session) liveVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	volume, err := s.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return volume, nil
}
