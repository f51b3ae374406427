// Package sources reads what volumes are filled from, and protects it with finalizers
// while a claim or an unfinished volume needs it.
package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// listPage is the page size of lists.
const listPage = 500

var errNoAPI = errors.New("API is not installed in this cluster")

// Reader reads snapshots and grants, whose APIs may not be installed. It caches
// nothing, since few claims refer to them.
type Reader struct {
	Client dynamic.Interface
}

// SnapshotResource is VolumeSnapshots.
func SnapshotResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: plan.SnapshotGroup, Version: "v1", Resource: "volumesnapshots"}
}

// ContentResource is VolumeSnapshotContents.
func ContentResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: plan.SnapshotGroup, Version: "v1", Resource: "volumesnapshotcontents"}
}

// GrantResource is ReferenceGrants.
func GrantResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "referencegrants"}
}

// Snapshot reads a VolumeSnapshot.
func (r Reader) Snapshot(ctx context.Context, origin plan.Origin) (*plan.Snapshot, error) {
	object, err := r.snapshots(origin.Namespace).Get(ctx, origin.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", plan.ErrSource, origin, explain(err))
	}
	snapshot := &plan.Snapshot{}
	return snapshot, decode(object.Object, snapshot)
}

// SnapshotContent reads a VolumeSnapshotContent.
func (r Reader) SnapshotContent(ctx context.Context, name string) (*plan.SnapshotContent, error) {
	object, err := r.Client.Resource(ContentResource()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: read VolumeSnapshotContent %s: %w", plan.ErrSource, name, explain(err))
	}
	content := &plan.SnapshotContent{}
	return content, decode(object.Object, content)
}

// Grants lists the ReferenceGrants of a namespace.
func (r Reader) Grants(ctx context.Context, namespace string) ([]plan.Grant, error) {
	list, err := r.Client.Resource(GrantResource()).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: read the ReferenceGrants of namespace %s: %w", plan.ErrSource, namespace, explain(err))
	}
	grants := make([]plan.Grant, len(list.Items))
	for i, item := range list.Items {
		if err := decode(item.Object, &grants[i]); err != nil {
			return nil, err
		}
	}
	return grants, nil
}

// protectedSnapshots lists the snapshots with the finalizer.
func (r Reader) protectedSnapshots(ctx context.Context) ([]plan.Origin, error) {
	var found []plan.Origin
	options := metav1.ListOptions{Limit: listPage}
	for {
		list, err := r.snapshots(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, explain(err)
		}
		for _, item := range list.Items {
			if slices.Contains(item.GetFinalizers(), SnapshotFinalizer) {
				found = append(found, plan.Origin{Kind: plan.SnapshotOrigin, Namespace: item.GetNamespace(), Name: item.GetName()})
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return found, nil
		}
	}
}

func (r Reader) snapshots(namespace string) dynamic.ResourceInterface {
	return r.Client.Resource(SnapshotResource()).Namespace(namespace)
}

func decode(object map[string]any, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, into); err != nil {
		return fmt.Errorf("%w: decode %v: %w", plan.ErrSource, object["kind"], err)
	}
	return nil
}

// explain distinguishes a missing API from a missing object: the API server answers
// 404 to both.
func explain(err error) error {
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &answer) {
		return err
	}
	details := answer.Status().Details
	if details != nil && details.Name != "" {
		return err
	}
	return fmt.Errorf("its %w: %w", errNoAPI, err)
}
