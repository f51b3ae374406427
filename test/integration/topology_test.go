package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const selectedNode = "volume.kubernetes.io/selected-node"

// newZonedWorld has a node in each zone, with the driver on it, and a class whose
// claims wait for their pod.
func newZonedWorld(t *testing.T, with []string, zones ...string) *world {
	t.Helper()
	w := newWorldWith(t, with, func(class *storagev1.StorageClass) {
		class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	})
	w.driver.SetServices(csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	for _, zone := range zones {
		w.createNode(zone)
	}
	return w
}

func (w *world) node(zone string) string { return w.name + "-" + zone }

func (w *world) createNode(zone string) {
	w.Helper()
	key := w.name + "/zone"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node(zone), Labels: map[string]string{key: zone}}}
	if _, err := w.client.CoreV1().Nodes().Create(w.Context(), node, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	registered := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: w.driverName, NodeID: node.Name, TopologyKeys: []string{key}},
		}},
	}
	if _, err := w.client.StorageV1().CSINodes().Create(w.Context(), registered, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// schedule does what the scheduler does with a claim that waits for its pod.
func (w *world) schedule(claim, node string) {
	w.Helper()
	claims := w.client.CoreV1().PersistentVolumeClaims(w.name)
	w.eventually("claim "+claim+" is scheduled", func() error {
		got, err := claims.Get(w.Context(), claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&got.ObjectMeta, selectedNode, node)
		_, err = claims.Update(w.Context(), got, metav1.UpdateOptions{})
		return err
	})
}

// A zone without room sends the claim back to the scheduler, whose second choice
// is where the volume comes to be and where it can be reached from.
func TestTopology(t *testing.T) {
	w := newZonedWorld(t, []string{"topology"}, "a", "b")
	key := w.name + "/zone"
	w.driver.OnCreate(func(_ context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		requisite := request.GetAccessibilityRequirements().GetRequisite()
		if len(requisite) != 1 {
			return nil, status.Errorf(codes.InvalidArgument, "asked for %v", requisite)
		}
		if requisite[0].GetSegments()[key] == "a" {
			return nil, status.Error(codes.ResourceExhausted, "full")
		}
		response, err := next()
		response.GetVolume().AccessibleTopology = requisite
		return response, err
	})
	w.start("--strict-topology")
	w.createClaim("data")
	w.schedule("data", w.node("a"))
	w.awaitEvent("data", "ProvisioningFailed", "ResourceExhausted: full")
	w.eventually("the scheduler may choose again", func() error {
		claim, err := w.client.CoreV1().PersistentVolumeClaims(w.name).Get(t.Context(), "data", metav1.GetOptions{})
		if err == nil && claim.Annotations[selectedNode] != "" {
			err = errors.New("it still has its node")
		}
		return err
	})
	w.schedule("data", w.node("b"))
	volume := w.awaitBound("data")
	term := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	if term.Key != key || !slices.Equal(term.Values, []string{"b"}) {
		t.Errorf("it can be reached from %v", term)
	}
	w.deleteClaim("data")
	w.awaitVolumeGone(volume.Name)
}

// Claims that do not wait for a pod can be placed anywhere, or where the driver
// likes.
func TestImmediateTopology(t *testing.T) {
	for name, test := range map[string]struct {
		flag    string
		allowed []corev1.TopologySelectorTerm
		want    []string
	}{
		"anywhere": {flag: "--immediate-topology=true", want: []string{"a", "b"}},
		"free":     {flag: "--immediate-topology=false"},
		"allowed": {flag: "--immediate-topology=false", want: []string{"b"}, allowed: []corev1.TopologySelectorTerm{{
			MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "immediate-topology-allowed/zone", Values: []string{"b"}}},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newZonedWorld(t, []string{"topology"}, "a", "b")
			w.createClass(w.name+"-now", func(class *storagev1.StorageClass) {
				class.AllowedTopologies = test.allowed
			})
			w.start(test.flag)
			w.createClaim("data", ofClass(w.name+"-now"))
			volume := w.awaitBound("data")
			var asked []string
			for _, topology := range w.asked(volume.Name).GetAccessibilityRequirements().GetRequisite() {
				asked = append(asked, topology.GetSegments()[w.name+"/zone"])
			}
			slices.Sort(asked)
			if !slices.Equal(asked, test.want) {
				t.Errorf("the driver was asked for %v, want %v", asked, test.want)
			}
		})
	}
}

func TestAttachedVolume(t *testing.T) {
	w := newWorldWith(t, []string{"attach"})
	w.driver.SetCapabilities(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	first := w.start()
	w.createClaim("data")
	volume := w.awaitBound("data")
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: w.driverName, NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume.Name},
		},
	}
	attachments := w.client.StorageV1().VolumeAttachments()
	if _, err := attachments.Create(t.Context(), attachment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// It has the attachment in its cache before it works.
	w.start()
	w.deleteClaim("data")
	w.eventually("its deletion is refused", func() error {
		events, err := w.client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.InvolvedObject.Name == volume.Name && event.Reason == "VolumeFailedDelete" {
				return nil
			}
		}
		return errors.New("no event")
	})
	if calls := w.driver.Deletes(); len(calls) != 0 {
		t.Fatalf("the driver was told to delete what is attached: %v", calls)
	}
	if err := attachments.Delete(t.Context(), w.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitVolumeGone(volume.Name)
}

func TestCapacity(t *testing.T) {
	w := newZonedWorld(t, []string{"topology", "capacity"}, "a", "b")
	w.driver.SetCapabilities(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	w.driver.SetCapacity(5 << 30)
	deployment, pod := w.createPod()
	r := w.startIn(pod, "--enable-capacity", "--capacity-ownerref-level=2", "--capacity-poll-interval=200ms",
		"--kube-api-capacity-qps=50", "--kube-api-capacity-burst=50")
	for _, published := range w.awaitCapacity(map[string]string{"a": "5Gi", "b": "5Gi"}) {
		if owner := published.OwnerReferences; len(owner) != 1 || owner[0].Kind != "Deployment" || owner[0].UID != deployment.UID {
			t.Errorf("the owner of %s is %v", published.Name, owner)
		}
	}
	w.awaitMetrics(r, "csistoragecapacities_desired_goal 2", "csistoragecapacities_desired_current 2", "csistoragecapacities_obsolete 0")
	checkWatchedOnce(t, r, "StorageClass", "Node", "CSINode", "PersistentVolume", "PersistentVolumeClaim", "CSIStorageCapacity")
	w.driver.SetCapacity(1 << 30)
	w.createNode("c")
	w.awaitCapacity(map[string]string{"a": "1Gi", "b": "1Gi", "c": "1Gi"})
	if err := w.client.CoreV1().Nodes().Delete(t.Context(), w.node("a"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitCapacity(map[string]string{"b": "1Gi", "c": "1Gi"})
	if err := w.client.StorageV1().StorageClasses().Delete(t.Context(), w.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitCapacity(map[string]string{})
}

// checkWatchedOnce tells, by the log of client-go, whether a process has one watch of each
// kind.
func checkWatchedOnce(t *testing.T, r *replica, kinds ...string) {
	t.Helper()
	log, err := os.ReadFile(r.Log)
	if err != nil {
		t.Fatal(err)
	}
	watches := map[string]int{}
	for _, match := range regexp.MustCompile(`"Starting reflector" type="\*v1\.(\w+)"`).FindAllStringSubmatch(string(log), -1) {
		watches[match[1]]++
	}
	for _, kind := range kinds {
		if watches[kind] != 1 {
			t.Errorf("%d watches of %s, want 1", watches[kind], kind)
		}
	}
}

// createPod makes what kube-controller-manager makes of the Deployment.
func (w *world) createPod() (*appsv1.Deployment, *corev1.Pod) {
	w.Helper()
	apps := w.client.AppsV1()
	deployment, err := apps.Deployments(w.account.namespace).Get(w.Context(), w.account.name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	owned := func(owner metav1.Object, kind string) metav1.ObjectMeta {
		controller := *metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))
		return metav1.ObjectMeta{Name: w.name, OwnerReferences: []metav1.OwnerReference{controller}}
	}
	set := &appsv1.ReplicaSet{
		ObjectMeta: owned(deployment, "Deployment"),
		Spec:       appsv1.ReplicaSetSpec{Selector: deployment.Spec.Selector, Template: deployment.Spec.Template},
	}
	if set, err = apps.ReplicaSets(w.account.namespace).Create(w.Context(), set, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: owned(set, "ReplicaSet"), Spec: deployment.Spec.Template.Spec}
	if pod, err = w.client.CoreV1().Pods(w.account.namespace).Create(w.Context(), pod, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	return deployment, pod
}

// startIn is start in a pod.
func (w *world) startIn(pod *corev1.Pod, args ...string) *replica {
	w.Helper()
	environment := []string{"NAMESPACE=" + pod.Namespace, "POD_NAME=" + pod.Name, os.Getenv(provisionerEnv)}
	return w.run("/usr/bin/env", append(environment, w.args(args)...)...)
}

func (w *world) awaitCapacity(want map[string]string) (published []storagev1.CSIStorageCapacity) {
	w.Helper()
	w.eventually(fmt.Sprintf("published are %v", want), func() error {
		list, err := w.client.StorageV1().CSIStorageCapacities(w.account.namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := map[string]string{}
		published = nil
		for _, object := range list.Items {
			if object.StorageClassName == w.name {
				got[object.NodeTopology.MatchLabels[w.name+"/zone"]] = object.Capacity.String()
				published = append(published, object)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("they are %v", got)
		}
		return nil
	})
	return published
}
