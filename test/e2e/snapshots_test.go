package e2e

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	snapshotGroup   = "snapshot.storage.k8s.io"
	snapshotVersion = "v1"
)

func (e *env) snapshotAPI(resource string) dynamic.NamespaceableResourceInterface {
	e.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		e.t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		e.t.Fatal(err)
	}
	return client.Resource(schema.GroupVersionResource{Group: snapshotGroup, Version: snapshotVersion, Resource: resource})
}

func snapshotObject(kind, generateName string, fields map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: fields}
	object.SetAPIVersion(snapshotGroup + "/" + snapshotVersion)
	object.SetKind(kind)
	object.SetGenerateName(generateName)
	return object
}

// createSnapshot makes a class, which goes with the test, and a snapshot of it.
func (e *env) createSnapshot(claim *corev1.PersistentVolumeClaim) string {
	e.t.Helper()
	classes := e.snapshotAPI("volumesnapshotclasses")
	class, err := classes.Create(e.t.Context(), snapshotObject("VolumeSnapshotClass", e.namespace+"-", map[string]any{
		"driver":         driverName,
		"deletionPolicy": "Delete",
	}), metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := classes.Delete(ctx, class.GetName(), metav1.DeleteOptions{}); err != nil {
			e.t.Error(err)
		}
	})
	snapshot, err := e.snapshotAPI("volumesnapshots").Namespace(e.namespace).Create(e.t.Context(),
		snapshotObject("VolumeSnapshot", "snapshot-", map[string]any{
			"spec": map[string]any{
				"volumeSnapshotClassName": class.GetName(),
				"source":                  map[string]any{"persistentVolumeClaimName": claim.Name},
			},
		}), metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return snapshot.GetName()
}

func (e *env) waitSnapshotReady(name string) {
	e.t.Helper()
	snapshots := e.snapshotAPI("volumesnapshots").Namespace(e.namespace)
	e.eventually("snapshot "+name+" is ready", func(ctx context.Context) error {
		snapshot, err := snapshots.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready, _, err := unstructured.NestedBool(snapshot.Object, "status", "readyToUse")
		if err == nil && !ready {
			err = fmt.Errorf("its status is %v", snapshot.Object["status"])
		}
		return err
	})
}

func (e *env) deleteSnapshot(name string) {
	e.t.Helper()
	snapshots := e.snapshotAPI("volumesnapshots").Namespace(e.namespace)
	if err := snapshots.Delete(e.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
	contents := e.snapshotAPI("volumesnapshotcontents")
	e.eventually("snapshot "+name+" and its content are gone", func(ctx context.Context) error {
		_, err := snapshots.Get(ctx, name, metav1.GetOptions{})
		if err := isGone("snapshot", err); err != nil {
			return err
		}
		left, err := contents.List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d contents are left", len(left.Items))
		}
		return err
	})
}
