package parity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// patience is how long something may take; a claim that waits longer is stuck.
	patience = 9 * time.Second
	// afterFailure is for what follows a failure's event.
	afterFailure = 1200 * time.Millisecond
	// refresh is for capacity objects after a change.
	refresh = 4 * time.Second
	// release is for the finalizer of a source.
	release = 5 * time.Second

	selectedNode = "volume.kubernetes.io/selected-node"
	ownerLabel   = "parity/scenario"
)

type action func(w *world, argument json.RawMessage) error

// with is an action whose argument is a T.
func with[T any](act func(w *world, argument T) error) action {
	return func(w *world, text json.RawMessage) error {
		var argument T
		if text != nil {
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&argument); err != nil {
				return err
			}
		}
		return act(w, argument)
	}
}

func plainly(act func(w *world) error) action {
	return func(w *world, _ json.RawMessage) error { return act(w) }
}

// actions are the steps by name.
func actions() map[string]action {
	return map[string]action{
		// csi-provisioner
		"start":     plainly((*world).start),
		"kill":      plainly(func(w *world) error { return w.process.Kill() }),
		"terminate": plainly((*world).terminated),
		// objects
		"claim":         with((*world).makeClaim),
		"claims":        with((*world).makeClaims),
		"deleteClaims":  with((*world).deleteClaims),
		"select":        with((*world).selectNode),
		"volume":        rawVolume,
		"snapshot":      with((*world).makeSnapshot),
		"zones":         plainly((*world).makeZones),
		"node":          with(func(w *world, n node) error { return w.makeNode(n.Name, n.Labels) }),
		"pod":           plainly((*world).makePod),
		"refuseVolumes": with((*world).refuseVolumes),
		"make":          with((*world).makeObject),
		"patch":         with((*world).patchObject),
		"delete":        with((*world).deleteObject),
		// the driver
		"room": with((*world).setRoom),
		// waiting; each is a milestone of the record
		"pause":            with(func(_ *world, d metav1.Duration) error { time.Sleep(d.Duration); return nil }),
		"bound":            with((*world).awaitBound),
		"boundWithin":      with((*world).awaitBoundWithin),
		"failed":           with((*world).awaitFailed),
		"gone":             plainly((*world).awaitGone),
		"created":          with((*world).awaitCreated),
		"driverEmpty":      with((*world).awaitDriverEmpty),
		"unselected":       with((*world).awaitUnselected),
		"withoutFinalizer": with((*world).awaitWithoutFinalizer),
		"published":        with((*world).awaitPublished),
		"capacity":         with((*world).awaitCapacity),
		"count":            with((*world).countCalls),
		"scrape":           plainly((*world).scrape),
	}
}

// perform does steps in order; those of the driver's rules come from its calls.
func (w *world) perform(steps []step) {
	for _, s := range steps {
		act := actions()[s.name]
		if act == nil {
			w.Errorf("there is no step %q", s.name)
			return
		}
		if err := act(w, w.resolved(s.argument)); err != nil {
			w.Errorf("step %s: %v", s.name, err)
		}
	}
}

type node struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

func (w *world) makeZones() error {
	for _, zone := range []string{"a", "b", "c"} {
		if err := w.makeNode(zone, map[string]string{w.id + "/zone": zone}); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) terminated() error {
	w.milestone("status on SIGTERM", fmt.Sprint(w.terminate()))
	w.process = nil
	return nil
}

// claim is a PersistentVolumeClaim without what nearly all have.
type claim struct {
	Name     string `json:"name,omitempty"`
	Selected string `json:"selected,omitempty"`
	corev1.PersistentVolumeClaim
}

func (w *world) makeClaim(c claim) error {
	object := c.PersistentVolumeClaim
	object.Name = c.Name
	if c.Name == "" {
		object.Name = "claim"
	}
	if c.Selected != "" {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, selectedNode, c.Selected)
	}
	if object.Spec.StorageClassName == nil {
		object.Spec.StorageClassName = &w.id
	}
	if object.Spec.AccessModes == nil {
		object.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	if object.Spec.Resources.Requests == nil {
		object.Spec.Resources.Requests = gibibyte()
	}
	made, err := w.client.CoreV1().PersistentVolumeClaims(w.id).Create(w.Context(), &object, metav1.CreateOptions{})
	if err == nil {
		w.learn(made.Name, made.UID)
	}
	return err
}

func gibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

type claims struct {
	Names    []string `json:"names"`
	Selected string   `json:"selected,omitempty"`
}

func (w *world) makeClaims(c claims) error {
	for _, name := range c.Names {
		if err := w.makeClaim(claim{Name: name, Selected: c.Selected}); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) deleteClaims(names []string) error {
	for _, name := range names {
		if err := w.client.CoreV1().PersistentVolumeClaims(w.id).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

type selection struct {
	Claim string `json:"claim"`
	Node  string `json:"node"`
}

// selectNode is what the scheduler does.
func (w *world) selectNode(s selection) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, selectedNode, s.Node)
	_, err := w.client.CoreV1().PersistentVolumeClaims(w.id).Patch(w.Context(), s.Claim, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// rawVolume makes a PersistentVolume that is to be deleted, with fields replaced.
func rawVolume(w *world, fields json.RawMessage) error {
	const goneClaim = "00000000-0000-0000-0000-000000000001"
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: w.id + "-old", Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": w.driverName}},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              w.id,
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      gibibyte(),
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: w.id, Name: "gone", UID: goneClaim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: w.driverName, VolumeHandle: handlePrefix + "old",
			}},
		},
	}
	if err := json.Unmarshal(fields, volume); err != nil {
		return err
	}
	_, err := w.client.CoreV1().PersistentVolumes().Create(w.Context(), volume, metav1.CreateOptions{})
	return err
}

// snapshot is a VolumeSnapshot of 1 GiB, called snap.
type snapshot struct {
	NotReady         bool   `json:"notReady,omitempty"`
	Driver           string `json:"driver,omitempty"`
	SourceVolumeMode string `json:"sourceVolumeMode,omitempty"`
	AllowModeChange  string `json:"allowModeChange,omitempty"`
}

func (w *world) makeSnapshot(s snapshot) error {
	const name, handle, size = "snap", "handle-of-snap", int64(1 << 30)
	content := "content-" + w.id
	made, err := w.dynamic.Resource(kinds()["VolumeSnapshot"].resource).Namespace(w.id).Create(w.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"source": map[string]any{"volumeSnapshotContentName": content}},
		"status":   map[string]any{"boundVolumeSnapshotContentName": content, "readyToUse": !s.NotReady, "restoreSize": "1Gi"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if s.Driver == "" {
		s.Driver = w.driverName
	}
	spec := map[string]any{
		"deletionPolicy": "Retain", "driver": s.Driver, "source": map[string]any{"snapshotHandle": handle},
		"volumeSnapshotRef": map[string]any{"name": name, "namespace": w.id, "uid": string(made.GetUID())},
	}
	if s.SourceVolumeMode != "" {
		spec["sourceVolumeMode"] = s.SourceVolumeMode
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
		"metadata": map[string]any{"name": content},
		"spec":     spec,
		"status":   map[string]any{"readyToUse": !s.NotReady, "restoreSize": size, "snapshotHandle": handle},
	}}
	if s.AllowModeChange != "" {
		object.SetAnnotations(map[string]string{"snapshot.storage.kubernetes.io/allow-volume-mode-change": s.AllowModeChange})
	}
	_, err = w.dynamic.Resource(kinds()["VolumeSnapshotContent"].resource).Create(w.Context(), object, metav1.CreateOptions{})
	return err
}

// makePod makes a Deployment's ReplicaSet's pod.
func (w *world) makePod() error {
	labels := map[string]string{"app": "x"}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	deployment, err := w.client.AppsV1().Deployments(w.system()).Create(w.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "deployment"},
		Spec:       appsv1.DeploymentSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	set, err := w.client.AppsV1().ReplicaSets(w.system()).Create(w.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "replicaset", OwnerReferences: controlledBy("Deployment", deployment)},
		Spec:       appsv1.ReplicaSetSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = w.client.CoreV1().Pods(w.system()).Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", OwnerReferences: controlledBy("ReplicaSet", set)},
		Spec:       template.Spec,
	}, metav1.CreateOptions{})
	return err
}

func controlledBy(kind string, owner metav1.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true)}}
}

// refuseVolumes has the API server refuse the scenario's PersistentVolumes with a
// reason, until the ValidatingAdmissionPolicyBinding of its name is deleted.
func (w *world) refuseVolumes(reason metav1.StatusReason) error {
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: w.id}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: new(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"}},
		}}}},
		MatchConditions: []admissionv1.MatchCondition{{Name: "own", Expression: "has(object.spec.storageClassName) && object.spec.storageClassName == '" + w.id + "'"}},
		Validations:     []admissionv1.Validation{{Expression: "false", Message: "refused by the test", Reason: &reason}},
	}}
	policies := w.client.AdmissionregistrationV1()
	if _, err := policies.ValidatingAdmissionPolicies().Create(w.Context(), policy, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.id},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: w.id, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(w.Context(), binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: w.id}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: w.id, Capacity: gibibyte(), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
	}}
	w.await("policy in force", patience, func() bool {
		_, err := w.client.CoreV1().PersistentVolumes().Create(w.Context(), volume, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
	return nil
}

// kind is where the API server has objects of a kind.
type kind struct {
	resource   schema.GroupVersionResource
	namespaced bool
}

// kinds are those that steps name.
func kinds() map[string]kind {
	of := func(group, version, resource string, namespaced bool) kind {
		return kind{schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, namespaced}
	}
	return map[string]kind{
		"CSINode":                          of("storage.k8s.io", "v1", "csinodes", false),
		"CSIStorageCapacity":               of("storage.k8s.io", "v1", "csistoragecapacities", true),
		"Node":                             of("", "v1", "nodes", false),
		"PersistentVolume":                 of("", "v1", "persistentvolumes", false),
		"PersistentVolumeClaim":            of("", "v1", "persistentvolumeclaims", true),
		"Secret":                           of("", "v1", "secrets", true),
		"StorageClass":                     of("storage.k8s.io", "v1", "storageclasses", false),
		"ValidatingAdmissionPolicyBinding": of("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", false),
		"VolumeAttachment":                 of("storage.k8s.io", "v1", "volumeattachments", false),
		"VolumeAttributesClass":            of("storage.k8s.io", "v1", "volumeattributesclasses", false),
		"VolumeSnapshot":                   of("snapshot.storage.k8s.io", "v1", "volumesnapshots", true),
		"VolumeSnapshotContent":            of("snapshot.storage.k8s.io", "v1", "volumesnapshotcontents", false),
	}
}

// reference names an object, in the namespace of the claims if its kind has one.
type reference struct {
	Kind  string          `json:"kind"`
	Name  string          `json:"name"`
	Patch json.RawMessage `json:"patch,omitempty"`
}

func (w *world) kind(name, namespace string) (kind, string, error) {
	k, found := kinds()[name]
	switch {
	case !found:
		return k, "", fmt.Errorf("kind %q is not among those that steps may name: %v", name, sortedKeys(kinds()))
	case !k.namespaced:
		return k, "", nil
	case namespace == "":
		return k, w.id, nil
	}
	return k, namespace, nil
}

func (w *world) makeObject(fields map[string]any) error {
	object := &unstructured.Unstructured{Object: fields}
	k, namespace, err := w.kind(fmt.Sprint(fields["kind"]), object.GetNamespace())
	if err != nil {
		return err
	}
	object.SetAPIVersion(k.resource.GroupVersion().String())
	_, err = w.dynamic.Resource(k.resource).Namespace(namespace).Create(w.Context(), object, metav1.CreateOptions{})
	return err
}

func (w *world) patchObject(r reference) error {
	k, namespace, err := w.kind(r.Kind, "")
	if err != nil {
		return err
	}
	_, err = w.dynamic.Resource(k.resource).Namespace(namespace).Patch(w.Context(), r.Name, types.StrategicMergePatchType, r.Patch, metav1.PatchOptions{})
	return err
}

func (w *world) deleteObject(r reference) error {
	k, namespace, err := w.kind(r.Kind, "")
	if err != nil {
		return err
	}
	return w.dynamic.Resource(k.resource).Namespace(namespace).Delete(w.Context(), r.Name, metav1.DeleteOptions{})
}

// drop deletes an object and does not wait for finalizers. It may be gone already.
func (w *world) drop(k kind, namespace, name string) {
	resource := w.dynamic.Resource(k.resource).Namespace(namespace)
	_ = resource.Delete(w.Context(), name, metav1.DeleteOptions{})
	_, _ = resource.Patch(w.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
}

func (w *world) setRoom(room resource.Quantity) error {
	w.driver.setRoom(room.Value())
	return nil
}

func (w *world) isBound(name string) bool { return w.claim(name).Status.Phase == corev1.ClaimBound }

func (w *world) awaitBound(names []string) error {
	for _, name := range names {
		if w.await(name+" bound", patience, func() bool { return w.isBound(name) }) {
			if err := w.keep(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) awaitBoundWithin(limit metav1.Duration) error {
	w.await("claim bound within "+limit.Duration.String(), limit.Duration, func() bool { return w.isBound("claim") })
	return nil
}

func (w *world) awaitFailed(name string) error {
	const reason = "ProvisioningFailed"
	w.await(name+" has event "+reason, patience, func() bool {
		list, err := w.client.CoreV1().Events(w.id).List(w.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.name=" + name})
		return err == nil && len(list.Items) > 0
	})
	time.Sleep(afterFailure)
	return nil
}

func (w *world) awaitGone() error {
	w.await("all volumes gone", patience, func() bool { return len(w.volumes()) == 0 && len(w.driver.volumes()) == 0 })
	return nil
}

func (w *world) awaitCreated(calls int) error {
	w.await(fmt.Sprintf("%d creates begun", calls), patience, func() bool { return w.driver.count("CreateVolume") >= calls })
	return nil
}

func (w *world) awaitDriverEmpty(limit metav1.Duration) error {
	w.await("driver has no volume", limit.Duration, func() bool { return len(w.driver.volumes()) == 0 })
	return nil
}

func (w *world) awaitUnselected(name string) error {
	w.await("no node selected any more", patience, func() bool {
		c := w.claim(name)
		return c.Name != "" && c.Annotations[selectedNode] == ""
	})
	return nil
}

func (w *world) awaitWithoutFinalizer(name string) error {
	w.await(name+" without finalizer", release, func() bool { return len(w.claim(name).Finalizers) < 2 })
	return nil
}

func (w *world) awaitPublished(count int) error {
	w.await(fmt.Sprintf("%d capacities published", count), patience, func() bool {
		list, err := w.client.StorageV1().CSIStorageCapacities(w.system()).List(w.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == count
	})
	return nil
}

func (w *world) awaitCapacity(want string) error {
	w.await("capacity is "+want, refresh, func() bool {
		list, err := w.client.StorageV1().CSIStorageCapacities(w.system()).List(w.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) > 0 && list.Items[0].Capacity.String() == want
	})
	return nil
}

// counted has the milestone for a number. Calls are counted up to Most.
type counted struct {
	DriverVolumes string `json:"driverVolumes,omitempty"`
	Volumes       string `json:"volumes,omitempty"`
	CreateVolume  string `json:"CreateVolume,omitempty"`
	DeleteVolume  string `json:"DeleteVolume,omitempty"`
	Most          int    `json:"most,omitempty"`
}

func (w *world) countCalls(c counted) error {
	numbers := map[string]int{
		c.DriverVolumes: len(w.driver.volumes()), c.Volumes: len(w.volumes()),
		c.CreateVolume: w.driver.count("CreateVolume"), c.DeleteVolume: w.driver.count("DeleteVolume"),
	}
	delete(numbers, "")
	for _, what := range sortedKeys(numbers) {
		text := fmt.Sprint(numbers[what])
		if c.Most > 0 && numbers[what] >= c.Most {
			text = fmt.Sprint(c.Most, " or more")
		}
		w.milestone(what, text)
	}
	return nil
}

func (w *world) scrape() error {
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", w.port))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	w.record.Metrics = metricNames(string(text))
	for name := range w.record.Metrics {
		if slices.ContainsFunc(libraryMetrics(), func(prefix string) bool { return len(name) >= len(prefix) && name[:len(prefix)] == prefix }) {
			delete(w.record.Metrics, name)
		}
	}
	return nil
}
