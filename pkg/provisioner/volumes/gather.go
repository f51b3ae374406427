package volumes

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// gather reads what a claim refers to and lets package plan decide what to request
// from the driver.
func (c *creator) gather(ctx context.Context, options controller.ProvisionOptions) (*plan.Creation, error) {
	class, migrated, err := c.config.Cluster.Migration.Class(klog.FromContext(ctx), options.StorageClass)
	if err != nil {
		return nil, err
	}
	claim := options.PVC
	creation, err := plan.NewCreation(c.options(), claim, class, options.PVName)
	if err != nil {
		return nil, err
	}
	creation.Migrated = migrated
	if err := c.gatherOrigin(ctx, creation, claim); err != nil {
		return nil, err
	}
	if name := ptr.Deref(claim.Spec.VolumeAttributesClassName, ""); name != "" {
		if err := c.gatherAttributes(ctx, creation, name); err != nil {
			return nil, err
		}
	}
	options.StorageClass = class
	return creation, c.place(ctx, creation, options)
}

func (c *creator) options() plan.Options {
	options := c.config.Options
	options.Driver = c.config.Driver.Capabilities()
	return options
}

func (c *creator) gatherOrigin(ctx context.Context, creation *plan.Creation, claim *corev1.PersistentVolumeClaim) error {
	origin, foreign := plan.ClaimOriginOf(claim)
	if foreign {
		c.config.Events.Event(claim, corev1.EventTypeNormal, "Provisioning", "Waiting for the volume populator of the claim's data source")
		return &controller.IgnoredError{Reason: "a volume populator handles the claim's data source"}
	}
	if origin.IsZero() {
		return nil
	}
	if err := plan.CheckOrigin(origin, claim, c.options()); err != nil {
		return err
	}
	if origin.Namespace != claim.Namespace {
		grants, err := c.config.Sources.Grants(ctx, origin.Namespace)
		if err != nil {
			return err
		}
		if err := plan.CheckGrants(origin, claim, grants); err != nil {
			return err
		}
	}
	content, err := c.content(ctx, origin, claim)
	if err != nil {
		// It may be waiting for the finalizer, and the claim waits in vain.
		c.config.Protection.Release(origin, creation.Request.GetName())
		return err
	}
	creation.Origin, creation.Request.VolumeContentSource = origin, content
	return nil
}

func (c *creator) content(ctx context.Context, origin plan.Origin, claim *corev1.PersistentVolumeClaim) (*csi.VolumeContentSource, error) {
	if origin.Kind == plan.ClaimOrigin {
		return c.cloneContent(ctx, origin, claim)
	}
	snapshot, err := c.config.Sources.Snapshot(ctx, origin)
	if err != nil {
		return nil, err
	}
	if err := plan.CheckSnapshot(snapshot); err != nil {
		return nil, err
	}
	content, err := c.config.Sources.SnapshotContent(ctx, snapshot.Status.BoundVolumeSnapshotContentName)
	if err != nil {
		return nil, err
	}
	return plan.RestoreContent(claim, snapshot, content, c.options())
}

func (c *creator) cloneContent(ctx context.Context, origin plan.Origin, claim *corev1.PersistentVolumeClaim) (*csi.VolumeContentSource, error) {
	source, err := c.config.Cluster.Client.CoreV1().PersistentVolumeClaims(origin.Namespace).Get(ctx, origin.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", plan.ErrSource, origin, err)
	}
	volume, err := c.config.Cluster.Volume(source.Spec.VolumeName)
	switch {
	case apierrors.IsNotFound(err):
		volume = nil
	case err != nil:
		return nil, err
	default:
		volume = c.config.Cluster.AsCSI(volume)
	}
	return plan.CloneContent(claim, source, volume, c.options().Driver.DriverName)
}

// gatherAttributes reads the class when it is needed: few claims name one.
func (c *creator) gatherAttributes(ctx context.Context, creation *plan.Creation, name string) error {
	if err := plan.CheckAttributes(name, c.options()); err != nil {
		return err
	}
	class, err := c.attributesClass(ctx, name)
	if err != nil {
		return fmt.Errorf("read VolumeAttributesClass %s: %w", name, err)
	}
	return creation.Modify(class)
}

// attributesClass reads storage.k8s.io/v1beta1 where the API server is older than v1,
// which is that of Kubernetes 1.34.
func (c *creator) attributesClass(ctx context.Context, name string) (*storagev1.VolumeAttributesClass, error) {
	client := c.config.Cluster.Client
	class, err := client.StorageV1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	if !notServed(err) {
		return class, err
	}
	beta, err := client.StorageV1beta1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case notServed(err):
		return nil, fmt.Errorf("the API server serves the kind neither in storage.k8s.io/v1 nor in v1beta1: %w", err)
	case err != nil:
		return nil, err
	}
	return &storagev1.VolumeAttributesClass{ObjectMeta: beta.ObjectMeta, DriverName: beta.DriverName, Parameters: beta.Parameters}, nil
}

// notServed distinguishes an API that does not exist from an object that does not: the
// API server answers 404 to both.
func notServed(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// place adds the topology requirement of the claim.
func (c *creator) place(ctx context.Context, creation *plan.Creation, options controller.ProvisionOptions) error {
	if node := c.config.Cluster.Node; !node.IsZero() {
		return creation.Place(node.Placement(options.PVC.Name, options.StorageClass.AllowedTopologies), true)
	}
	if !c.config.Topology.Enabled {
		return nil
	}
	placement := plan.Placement{
		Strict:    c.config.Topology.Strict,
		Immediate: c.config.Topology.Immediate,
		ClaimName: options.PVC.Name,
		Allowed:   options.StorageClass.AllowedTopologies,
	}
	var err error
	if options.SelectedNodeName != "" {
		if placement.Selected, err = c.config.Cluster.Segment(ctx, options.SelectedNodeName); err != nil {
			return err
		}
	}
	if placement.Cluster, err = c.config.Cluster.Segments(ctx); err != nil {
		return err
	}
	return creation.Place(placement, options.SelectedNodeName != "")
}
