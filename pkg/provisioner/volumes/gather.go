package volumes

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// gatherer reads what a claim refers to and lets package plan decide what to request
// from the driver.
type gatherer struct {
	config Config
}

func (g gatherer) gather(ctx context.Context, options controller.ProvisionOptions) (*plan.Creation, error) {
	class, migrated, err := g.config.Cluster.Migration().Class(klog.FromContext(ctx), options.StorageClass)
	if err != nil {
		return nil, err
	}
	claim := options.PVC
	creation, err := plan.NewCreation(g.options(), claim, class, options.PVName)
	if err != nil {
		return nil, err
	}
	creation.Migrated = migrated
	if err := g.gatherOrigin(ctx, creation, claim); err != nil {
		return nil, err
	}
	if name := plan.AttributesClassName(claim); name != "" {
		if err := g.gatherAttributes(ctx, creation, name); err != nil {
			return nil, err
		}
	}
	options.StorageClass = class
	return creation, g.place(ctx, creation, options)
}

func (g gatherer) options() plan.Options {
	options := g.config.Options
	options.Driver = g.config.Driver.Capabilities()
	return options
}

func (g gatherer) gatherOrigin(ctx context.Context, creation *plan.Creation, claim *corev1.PersistentVolumeClaim) error {
	origin, foreign := plan.ClaimOriginOf(claim)
	if foreign {
		g.config.Events.Event(claim, corev1.EventTypeNormal, "Provisioning", "Waiting for the volume populator of the claim's data source")
		return &controller.IgnoredError{Reason: "a volume populator handles the claim's data source"}
	}
	if origin.IsZero() {
		return nil
	}
	if err := plan.CheckOrigin(origin, claim, g.options()); err != nil {
		return err
	}
	if origin.Namespace != claim.Namespace {
		grants, err := g.config.Sources.Grants(ctx, origin.Namespace)
		if err != nil {
			return err
		}
		if err := plan.CheckGrants(origin, claim, grants); err != nil {
			return err
		}
	}
	content, err := g.content(ctx, origin, claim)
	if err != nil {
		return err
	}
	creation.Fill(origin, content)
	return nil
}

func (g gatherer) content(ctx context.Context, origin plan.Origin, claim *corev1.PersistentVolumeClaim) (*csi.VolumeContentSource, error) {
	if origin.Kind == plan.ClaimOrigin {
		return g.cloneContent(ctx, origin, claim)
	}
	snapshot, err := g.config.Sources.Snapshot(ctx, origin)
	if err != nil {
		return nil, err
	}
	if err := plan.CheckSnapshot(snapshot); err != nil {
		return nil, err
	}
	content, err := g.config.Sources.SnapshotContent(ctx, snapshot.ContentName())
	if err != nil {
		return nil, err
	}
	return plan.RestoreContent(claim, snapshot, content, g.options())
}

func (g gatherer) cloneContent(ctx context.Context, origin plan.Origin, claim *corev1.PersistentVolumeClaim) (*csi.VolumeContentSource, error) {
	source, err := g.config.Client.CoreV1().PersistentVolumeClaims(origin.Namespace).Get(ctx, origin.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", plan.ErrSource, origin, err)
	}
	volume, err := g.config.Cluster.Volume(source.Spec.VolumeName)
	switch {
	case apierrors.IsNotFound(err):
		volume = nil
	case err != nil:
		return nil, err
	default:
		volume = g.config.Cluster.AsCSI(volume)
	}
	return plan.CloneContent(claim, source, volume, g.options().Driver.DriverName)
}

// gatherAttributes reads the class when it is needed: few claims name one.
func (g gatherer) gatherAttributes(ctx context.Context, creation *plan.Creation, name string) error {
	if err := plan.CheckAttributes(name, g.options()); err != nil {
		return err
	}
	class, err := g.config.Client.StorageV1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read VolumeAttributesClass %s: %w", name, err)
	}
	return creation.Modify(class)
}

// place adds the topology requirement of the claim.
func (g gatherer) place(ctx context.Context, creation *plan.Creation, options controller.ProvisionOptions) error {
	if node := g.config.Node; !node.IsZero() {
		return creation.Place(node.Placement(options.PVC.Name, options.StorageClass.AllowedTopologies), true)
	}
	if !g.config.Topology.Enabled {
		return nil
	}
	placement := plan.Placement{
		Strict:    g.config.Topology.Strict,
		Immediate: g.config.Topology.Immediate,
		ClaimName: options.PVC.Name,
		Allowed:   options.StorageClass.AllowedTopologies,
	}
	var err error
	if options.SelectedNodeName != "" {
		if placement.Selected, err = g.config.Cluster.Segment(ctx, options.SelectedNodeName); err != nil {
			return err
		}
	}
	if placement.Cluster, err = g.config.Cluster.Segments(ctx); err != nil {
		return err
	}
	return creation.Place(placement, options.SelectedNodeName != "")
}
