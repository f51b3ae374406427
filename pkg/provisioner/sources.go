package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// listPage is how many objects are asked for at a time.
const listPage = 500

var errNoAPI = errors.New("API is not installed in this cluster")

// sources reads what volumes are filled from, of APIs that a cluster may not have.
// Nothing is cached: it is read for the few claims that name it.
type sources struct {
	client dynamic.Interface
}

func snapshotResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: plan.SnapshotGroup, Version: "v1", Resource: "volumesnapshots"}
}

func contentResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: plan.SnapshotGroup, Version: "v1", Resource: "volumesnapshotcontents"}
}

func grantResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "referencegrants"}
}

func (s sources) snapshot(ctx context.Context, origin plan.Origin) (*plan.Snapshot, error) {
	snapshot := &plan.Snapshot{}
	return snapshot, s.get(ctx, s.client.Resource(snapshotResource()).Namespace(origin.Namespace), origin.String(), origin.Name, snapshot)
}

func (s sources) snapshotContent(ctx context.Context, name string) (*plan.SnapshotContent, error) {
	content := &plan.SnapshotContent{}
	return content, s.get(ctx, s.client.Resource(contentResource()), "VolumeSnapshotContent "+name, name, content)
}

func (s sources) get(ctx context.Context, client dynamic.ResourceInterface, what, name string, into any) error {
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
	}
	if err != nil {
		return fmt.Errorf("%w: read %s: %w", plan.ErrSource, what, explain(err))
	}
	return nil
}

// grants are the ReferenceGrants of a namespace.
func (s sources) grants(ctx context.Context, namespace string) ([]plan.Grant, error) {
	list, err := s.client.Resource(grantResource()).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: read the ReferenceGrants of namespace %s: %w", plan.ErrSource, namespace, explain(err))
	}
	grants := make([]plan.Grant, len(list.Items))
	for i, item := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &grants[i]); err != nil {
			return nil, fmt.Errorf("%w: ReferenceGrant %s/%s: %w", plan.ErrSource, namespace, item.GetName(), err)
		}
	}
	return grants, nil
}

// protectedSnapshots are those that have the finalizer.
func (s sources) protectedSnapshots(ctx context.Context, finalizer string) ([]plan.Origin, error) {
	var found []plan.Origin
	options := metav1.ListOptions{Limit: listPage}
	for {
		list, err := s.client.Resource(snapshotResource()).List(ctx, options)
		if err != nil {
			return nil, explain(err)
		}
		for _, item := range list.Items {
			if slices.Contains(item.GetFinalizers(), finalizer) {
				found = append(found, plan.Origin{Kind: plan.SnapshotOrigin, Namespace: item.GetNamespace(), Name: item.GetName()})
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return found, nil
		}
	}
}

func (s sources) snapshotMeta(ctx context.Context, origin plan.Origin) (metav1.Object, error) {
	return s.client.Resource(snapshotResource()).Namespace(origin.Namespace).Get(ctx, origin.Name, metav1.GetOptions{})
}

func (s sources) patchSnapshot(ctx context.Context, origin plan.Origin, patch []byte) error {
	_, err := s.client.Resource(snapshotResource()).Namespace(origin.Namespace).
		Patch(ctx, origin.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// explain tells an API that is missing from an object that is missing: the API
// server answers 404 to both.
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
