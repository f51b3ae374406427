// Package cluster is the Kubernetes API as provisioning sees it: caches of trimmed
// objects, reads from the API server where a cache may lag, and PersistentVolumes of
// in-tree plugins as those of the CSI driver that has taken them over.
package cluster

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// ResyncPeriod bounds how long a missed event goes unnoticed.
const ResyncPeriod = 15 * time.Minute

// Config of a Cluster.
type Config struct {
	Client kubernetes.Interface
	Driver plan.Capabilities
	// Node to serve, zero for the whole cluster.
	Node plan.Node
	// Topology watches the nodes, which Segments needs.
	Topology bool
}

// Cluster reads from the Kubernetes API.
type Cluster struct {
	Config
	// Migration is the in-tree plugin that the driver has taken over.
	Migration plan.Migration
	// Informers take handlers and indexes until they are started.
	Informers informers.SharedInformerFactory
	classes   storagelisters.StorageClassLister
	claims    corelisters.PersistentVolumeClaimLister
	volumes   corelisters.PersistentVolumeLister
}

// New returns a Cluster whose caches are empty until its Informers are started.
func New(config Config) *Cluster {
	factory := informers.NewSharedInformerFactoryWithOptions(config.Client, ResyncPeriod, informers.WithTransform(newTrimmer(config.Node).trim))
	c := &Cluster{
		Config:    config,
		Migration: plan.NewMigration(config.Driver.DriverName),
		Informers: factory,
		classes:   factory.Storage().V1().StorageClasses().Lister(),
		claims:    factory.Core().V1().PersistentVolumeClaims().Lister(),
		volumes:   factory.Core().V1().PersistentVolumes().Lister(),
	}
	// What is watched has an informer before the start.
	if config.Topology {
		c.nodes().Informer()
		c.csiNodes().Informer()
	}
	if config.Driver.Attach {
		c.attachments().Informer()
	}
	return c
}

// Class returns a StorageClass from the cache, translated for the driver.
func (c *Cluster) Class(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	class, err := c.classes.Get(name)
	if err != nil {
		return nil, err
	}
	class, _, err = c.Migration.Class(klog.FromContext(ctx), class)
	return class, err
}

// Classes returns the StorageClasses of the driver from the cache, translated for it.
func (c *Cluster) Classes(ctx context.Context) ([]*storagev1.StorageClass, error) {
	all, err := c.classes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var own []*storagev1.StorageClass
	for _, class := range all {
		class, _, err := c.Migration.Class(klog.FromContext(ctx), class)
		if err == nil && class.Provisioner == c.Driver.DriverName {
			own = append(own, class)
		}
	}
	return own, nil
}

// Claim returns a claim from the cache.
func (c *Cluster) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return c.claims.PersistentVolumeClaims(namespace).Get(name)
}

// Volume returns a PersistentVolume from the cache, as stored.
func (c *Cluster) Volume(name string) (*corev1.PersistentVolume, error) {
	return c.volumes.Get(name)
}

// LiveClaim reads a claim from the API server, nil if there is none.
func (c *Cluster) LiveClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return live(c.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{}))
}

// LiveVolume reads a PersistentVolume from the API server, nil if there is none.
func (c *Cluster) LiveVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return live(c.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{}))
}

// live is nil for an object that does not exist.
func live[Object any](object *Object, err error) (*Object, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return object, nil
}

// Wants reports whether the driver provisions a claim.
func (c *Cluster) Wants(claim *corev1.PersistentVolumeClaim) bool {
	return c.Migration.Wants(claim, c.Driver.DriverName)
}

// AsCSI translates a PersistentVolume for the driver. One that cannot be translated
// is not the driver's and stays as it is.
func (c *Cluster) AsCSI(volume *corev1.PersistentVolume) *corev1.PersistentVolume {
	translated, err := c.Migration.Volume(klog.Background(), volume)
	if err != nil {
		return volume
	}
	return translated
}

// OnOtherNode reports whether a volume is known to be on another node than the one
// that is served.
func (c *Cluster) OnOtherNode(volume *corev1.PersistentVolume) bool {
	return c.Node.Elsewhere(c.AsCSI(volume))
}

// Holder is the name of a PersistentVolume with a handle of the driver, other than
// the one named except; empty for none. A driver that creates volumes on its own node
// can use the same handle on each node, so those of other nodes do not count.
func (c *Cluster) Holder(handle, except string) (string, error) {
	volumes, err := c.volumes.List(labels.Everything())
	if err != nil {
		return "", err
	}
	for _, volume := range volumes {
		if volume.Name == except || c.OnOtherNode(volume) {
			continue
		}
		if c.Migration.Same(klog.Background(), volume, c.Driver.DriverName, handle) {
			return volume.Name, nil
		}
	}
	return "", nil
}

// LastKnown is the object that a DeleteFunc handles, also if the watch missed its
// deletion.
func LastKnown(object any) any {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return object
}
