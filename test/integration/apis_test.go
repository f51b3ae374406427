package integration

import (
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var (
	snapshots = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	contents  = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
	grants    = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "referencegrants"}

	installAPIs sync.Once
)

// dynamic may do everything, with the APIs that a cluster need not have. They come
// with the first parallel test that asks for them: tests that are not parallel are
// all over then.
func (w *world) dynamic() dynamic.Interface {
	w.Helper()
	client, err := dynamic.NewForConfig(shared.Config("admin"))
	if err != nil {
		w.Fatal(err)
	}
	installAPIs.Do(func() {
		w.install(client, snapshots, "VolumeSnapshot", "Namespaced")
		w.install(client, contents, "VolumeSnapshotContent", "Cluster")
		w.install(client, grants, "ReferenceGrant", "Namespaced")
	})
	return client
}

func (w *world) install(client dynamic.Interface, resource schema.GroupVersionResource, kind, scope string) {
	w.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":        resource.GroupResource().String(),
			"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, in a test"},
		},
		"spec": map[string]any{
			"group": resource.Group,
			"scope": scope,
			"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": resource.Resource, "singular": strings.ToLower(kind)},
			"versions": []any{map[string]any{
				"name": resource.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(w.Context(), definition, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		w.Fatal(err)
	}
	w.eventually(kind+" is served", func() error {
		_, err := client.Resource(resource).List(w.Context(), metav1.ListOptions{})
		return err
	})
}

// object makes one, or one more of its kind.
func (w *world) object(resource schema.GroupVersionResource, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	w.Helper()
	object := &unstructured.Unstructured{Object: fields}
	object.SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	object.SetName(name)
	object.SetNamespace(namespace)
	made, err := w.dynamic().Resource(resource).Namespace(namespace).Create(w.Context(), object, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// snapshot makes a VolumeSnapshot that is ready, and its content.
func (w *world) snapshot(namespace, name string, finalizers ...string) *unstructured.Unstructured {
	w.Helper()
	content := "content-" + namespace + "-" + name
	// Not there before dynamic has been asked for it.
	w.dynamic()
	snapshot := w.object(snapshots, "VolumeSnapshot", namespace, name, map[string]any{
		"metadata": map[string]any{"finalizers": anys(finalizers)},
		"status":   map[string]any{"boundVolumeSnapshotContentName": content, "readyToUse": true, "restoreSize": "1Gi"},
	})
	w.object(contents, "VolumeSnapshotContent", "", content, map[string]any{
		"spec": map[string]any{
			"driver":            w.driverName,
			"volumeSnapshotRef": map[string]any{"namespace": namespace, "name": name, "uid": string(snapshot.GetUID())},
		},
		"status": map[string]any{"snapshotHandle": "snapshot-of-" + name},
	})
	return snapshot
}

func anys(texts []string) []any {
	values := make([]any, len(texts))
	for i, text := range texts {
		values[i] = text
	}
	return values
}

func (w *world) getSnapshot(namespace, name string) (*unstructured.Unstructured, error) {
	return w.dynamic().Resource(snapshots).Namespace(namespace).Get(w.Context(), name, metav1.GetOptions{})
}
