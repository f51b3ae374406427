package provisioner

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// gather reads what the claim names and lets plan decide what to ask of the driver.
func (s *session) gather(ctx context.Context, options controller.ProvisionOptions) (*plan.Creation, error) {
	claim := options.PVC
	creation, err := plan.NewCreation(s.planOptions(), claim, options.StorageClass, options.PVName)
	if err != nil {
		return nil, err
	}
	if err := s.gatherOrigin(ctx, creation, claim); err != nil {
		return nil, err
	}
	if name := plan.AttributesClassName(claim); name != "" {
		err = s.gatherAttributes(ctx, creation, name)
	}
	return creation, err
}

func (s *session) gatherOrigin(ctx context.Context, creation *plan.Creation, claim *corev1.PersistentVolumeClaim) error {
	origin, foreign := plan.ClaimOriginOf(claim)
	if foreign {
		s.events.Event(claim, corev1.EventTypeNormal, "Provisioning", "Waiting for the program that fills volumes from the claim's data source")
		return &controller.IgnoredError{Reason: "another program fills the claim's volume"}
	}
	if origin.IsZero() {
		return nil
	}
	if err := plan.CheckOrigin(origin, claim, s.planOptions()); err != nil {
		return err
	}
	if origin.Namespace != claim.Namespace {
		grants, err := s.sources.grants(ctx, origin.Namespace)
		if err != nil {
			return err
		}
		if err := plan.CheckGrants(origin, claim, grants); err != nil {
			return err
		}
	}
	content, err := s.content(ctx, origin, claim)
	if err != nil {
		return err
	}
	creation.Fill(origin, content)
	return nil
}

func (s *session) content(ctx context.Context, origin plan.Origin, claim *corev1.PersistentVolumeClaim) (*csi.VolumeContentSource, error) {
	if origin.Kind == plan.ClaimOrigin {
		return s.cloneContent(ctx, origin, claim)
	}
	snapshot, err := s.sources.snapshot(ctx, origin)
	if err != nil {
		return nil, err
	}
	if err := plan.CheckSnapshot(snapshot); err != nil {
		return nil, err
	}
	content, err := s.sources.snapshotContent(ctx, snapshot.ContentName())
	if err != nil {
		return nil, err
	}
	return plan.RestoreContent(claim, snapshot, content, s.planOptions())
}

func (s *session) cloneContent(ctx context.Context, origin plan.Origin, claim *corev1.PersistentVolumeClaim) (*csi.VolumeContentSource, error) {
	source, err := s.client.CoreV1().PersistentVolumeClaims(origin.Namespace).Get(ctx, origin.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", plan.ErrSource, origin, err)
	}
	volume, err := s.volumes.Get(source.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		volume, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	if volume != nil {
		volume = s.asCSI(volume)
	}
	return plan.CloneContent(claim, source, volume, s.config.Driver.Capabilities().DriverName)
}

// gatherAttributes reads the class when it is needed: few claims name one.
func (s *session) gatherAttributes(ctx context.Context, creation *plan.Creation, name string) error {
	if err := plan.CheckAttributes(name, s.planOptions()); err != nil {
		return err
	}
	class, err := s.client.StorageV1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read VolumeAttributesClass %s: %w", name, err)
	}
	return creation.Modify(class)
}
