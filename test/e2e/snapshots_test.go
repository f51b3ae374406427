package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	snapshotGroup      = "snapshot.storage.k8s.io"
	groupSnapshotGroup = "groupsnapshot.storage.k8s.io"
	snapshotVersion    = "v1"
)

// snapshotAPI is that of snapshots or of group snapshots.
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
	group := snapshotGroup
	if strings.HasPrefix(resource, "volumegroup") {
		group = groupSnapshotGroup
	}
	return client.Resource(schema.GroupVersionResource{Group: group, Version: snapshotVersion, Resource: resource})
}

func snapshotObject(kind, generateName string, fields map[string]any) *unstructured.Unstructured {
	group := snapshotGroup
	if strings.HasPrefix(kind, "VolumeGroup") {
		group = groupSnapshotGroup
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetAPIVersion(group + "/" + snapshotVersion)
	object.SetKind(kind)
	object.SetGenerateName(generateName)
	return object
}

// createSnapshotClass makes a class, which goes with the test.
func (e *env) createSnapshotClass(kind, resource string) (name string) {
	e.t.Helper()
	classes := e.snapshotAPI(resource)
	class, err := classes.Create(e.t.Context(), snapshotObject(kind, e.namespace+"-", map[string]any{
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
	return class.GetName()
}

func (e *env) createSnapshot(claim *corev1.PersistentVolumeClaim) (name string) {
	e.t.Helper()
	snapshot, err := e.snapshotAPI("volumesnapshots").Namespace(e.namespace).Create(e.t.Context(),
		snapshotObject("VolumeSnapshot", "snapshot-", map[string]any{
			"spec": map[string]any{
				"volumeSnapshotClassName": e.createSnapshotClass("VolumeSnapshotClass", "volumesnapshotclasses"),
				"source":                  map[string]any{"persistentVolumeClaimName": claim.Name},
			},
		}), metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return snapshot.GetName()
}

// createGroupSnapshot makes one of all claims with the label.
func (e *env) createGroupSnapshot(label, value string) (name string) {
	e.t.Helper()
	group, err := e.snapshotAPI("volumegroupsnapshots").Namespace(e.namespace).Create(e.t.Context(),
		snapshotObject("VolumeGroupSnapshot", "group-", map[string]any{
			"spec": map[string]any{
				"volumeGroupSnapshotClassName": e.createSnapshotClass("VolumeGroupSnapshotClass", "volumegroupsnapshotclasses"),
				"source":                       map[string]any{"selector": map[string]any{"matchLabels": map[string]any{label: value}}},
			},
		}), metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return group.GetName()
}

func (e *env) waitSnapshotReady(name string) {
	e.t.Helper()
	e.waitTaken("volumesnapshots", name)
}

// waitTaken waits for a snapshot or a group snapshot.
func (e *env) waitTaken(resource, name string) {
	e.t.Helper()
	snapshots := e.snapshotAPI(resource).Namespace(e.namespace)
	e.eventually(name+" is ready", func(ctx context.Context) error {
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
	e.deleteWithContents("volumesnapshots", name, "volumesnapshotcontents")
}

// deleteGroupSnapshot also waits for its members to go.
func (e *env) deleteGroupSnapshot(name string) {
	e.t.Helper()
	e.deleteWithContents("volumegroupsnapshots", name, "volumegroupsnapshotcontents", "volumesnapshotcontents")
}

func (e *env) deleteWithContents(resource, name string, contents ...string) {
	e.t.Helper()
	snapshots := e.snapshotAPI(resource).Namespace(e.namespace)
	if err := snapshots.Delete(e.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
	e.eventually(name+" and its contents are gone", func(ctx context.Context) error {
		_, err := snapshots.Get(ctx, name, metav1.GetOptions{})
		if err := isGone(name, err); err != nil {
			return err
		}
		for _, content := range contents {
			left, err := e.snapshotAPI(content).List(ctx, metav1.ListOptions{})
			if err == nil && len(left.Items) > 0 {
				err = fmt.Errorf("%d %s are left", len(left.Items), content)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
