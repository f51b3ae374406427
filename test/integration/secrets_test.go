package integration

import (
	"context"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const password = "hunter22-hunter22"

func (w *world) createSecret(namespace, name string) {
	w.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string][]byte{"password": []byte(password)},
	}
	if _, err := w.client.CoreV1().Secrets(namespace).Create(w.Context(), secret, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) allowSecrets(namespace string) {
	w.Helper()
	w.bind(namespace, "ClusterRole", w.account.release+"-provisioner-secrets")
}

func secretPair(purpose, name, namespace string) func(*storagev1.StorageClass) {
	return withParameters(map[string]string{
		"csi.storage.k8s.io/" + purpose + "-name":      name,
		"csi.storage.k8s.io/" + purpose + "-namespace": namespace,
	})
}

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { metav1.SetMetaDataAnnotation(&claim.ObjectMeta, key, value) }
}

// mustHide checks that neither log nor events have the secret.
func (w *world) mustHide(r *replica) {
	w.Helper()
	log, err := os.ReadFile(r.Log)
	if err != nil {
		w.Fatal(err)
	}
	if !strings.Contains(string(log), "/csi.v1.Controller/CreateVolume") || strings.Contains(string(log), password) {
		w.Error("the log lacks the calls or has the secret")
	}
	for _, namespace := range []string{w.name, metav1.NamespaceDefault} {
		events, err := w.client.CoreV1().Events(namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, password) {
				w.Errorf("an event has the secret: %s", event.Message)
			}
		}
	}
}

func TestEverySecret(t *testing.T) {
	w := newWorld(t,
		secretPair("provisioner-secret", "${pvc.annotations['example.com/secret']}", "${pvc.namespace}"),
		secretPair("controller-publish-secret", "publish-${pvc.name}", "${pvc.namespace}"),
		secretPair("node-stage-secret", "stage-${pvc.namespace}", "${pv.name}"),
		secretPair("node-publish-secret", "${pv.name}", "fixed"),
		secretPair("controller-expand-secret", "expand", "fixed"),
		secretPair("node-expand-secret", "node-expand.${pvc.annotations['example.com/secret']}", "fixed"),
		secretPair("controller-modify-secret", "modify-${pvc.name}", "${pvc.namespace}"),
	)
	w.createSecret(w.name, "mine")
	w.allowSecrets(w.name)
	r := w.start()
	claim := w.createClaim("data", annotated("example.com/secret", "mine"))
	volume := w.awaitBound("data")
	name := "pvc-" + string(claim.UID)

	source := volume.Spec.CSI
	for what, refs := range map[string]struct {
		got             *corev1.SecretReference
		namespace, name string
	}{
		"controller-publish": {source.ControllerPublishSecretRef, w.name, "publish-data"},
		"node-stage":         {source.NodeStageSecretRef, name, "stage-" + w.name},
		"node-publish":       {source.NodePublishSecretRef, "fixed", name},
		"controller-expand":  {source.ControllerExpandSecretRef, "fixed", "expand"},
		"node-expand":        {source.NodeExpandSecretRef, "fixed", "node-expand.mine"},
	} {
		if refs.got == nil || refs.got.Namespace != refs.namespace || refs.got.Name != refs.name {
			t.Errorf("%s secret is %v, want %s/%s", what, refs.got, refs.namespace, refs.name)
		}
	}
	want := map[string]string{
		"pv.kubernetes.io/provisioned-by":                            w.driverName,
		"volume.kubernetes.io/provisioner-deletion-secret-name":      "mine",
		"volume.kubernetes.io/provisioner-deletion-secret-namespace": w.name,
		"volume.kubernetes.io/controller-modify-secret-name":         "modify-data",
		"volume.kubernetes.io/controller-modify-secret-namespace":    w.name,
	}
	if !maps.Equal(volume.Annotations, want) {
		t.Errorf("annotations are %v", volume.Annotations)
	}
	request := w.asked(name)
	if got := request.GetSecrets(); !maps.Equal(got, map[string]string{"password": password}) {
		t.Errorf("CreateVolume got %v", got)
	}
	if got := request.GetParameters(); !maps.Equal(got, map[string]string{"server": "a"}) {
		t.Errorf("the driver got parameters %v", got)
	}
	w.deleteClaim("data")
	w.awaitVolumeGone(name)
	if got := w.driver.Deletes()[0].GetSecrets()["password"]; got != password {
		t.Errorf("DeleteVolume got password %q", got)
	}
	w.mustHide(r)
}

// One pair stands in for every purpose without its own.
func TestOneSecretForAll(t *testing.T) {
	w := newWorld(t, secretPair("secret", "common", "${pvc.namespace}"), secretPair("node-publish-secret", "own", "fixed"))
	w.createSecret(w.name, "common")
	w.allowSecrets(w.name)
	w.start()
	w.createClaim("data")
	volume := w.awaitBound("data")
	common, source := corev1.SecretReference{Namespace: w.name, Name: "common"}, volume.Spec.CSI
	for _, got := range []*corev1.SecretReference{
		source.ControllerPublishSecretRef, source.NodeStageSecretRef, source.ControllerExpandSecretRef, source.NodeExpandSecretRef,
	} {
		if got == nil || *got != common {
			t.Errorf("a secret is %v, want %v", got, common)
		}
	}
	if got := source.NodePublishSecretRef; got == nil || *got != (corev1.SecretReference{Namespace: "fixed", Name: "own"}) {
		t.Errorf("the node-publish secret is %v", got)
	}
	if volume.Annotations["volume.kubernetes.io/controller-modify-secret-name"] != "common" || w.asked(volume.Name).GetSecrets()["password"] != password {
		t.Errorf("annotations are %v", volume.Annotations)
	}
}

// A missing secret is one event, however often the claim is retried; the claim is bound
// once the secret exists.
func TestMissingSecret(t *testing.T) {
	w := newWorld(t, secretPair("provisioner-secret", "${pvc.annotations['example.com/secret']}", "${pvc.namespace}"))
	w.allowSecrets(w.name)
	r := w.start("--retry-interval-max=100ms")

	w.createClaim("key")
	w.awaitEvent("key", "ProvisioningFailed", `the claim has no annotation "example.com/secret"`)
	w.createClaim("secret", annotated("example.com/secret", "mine"))
	w.awaitEvent("secret", "ProvisioningFailed", `secrets "mine" not found`)
	w.awaitTries(r, 20)
	if calls := w.driver.Creates(); len(calls) != 0 {
		t.Fatalf("the driver was asked without the secret: %v", calls)
	}
	for _, claim := range []string{"key", "secret"} {
		// The delay until the next try is part of the message, and grows twice.
		if messages := w.messages(claim, "ProvisioningFailed"); len(messages) > 3 {
			t.Errorf("%d events for one failure: %q", len(messages), messages)
		}
	}
	w.createSecret(w.name, "mine")
	w.awaitBound("secret")
	w.eventually("the claim gets its annotation", func() error {
		claims := w.client.CoreV1().PersistentVolumeClaims(w.name)
		claim, err := claims.Get(t.Context(), "key", metav1.GetOptions{})
		if err == nil {
			annotated("example.com/secret", "mine")(claim)
			_, err = claims.Update(t.Context(), claim, metav1.UpdateOptions{})
		}
		return err
	})
	w.awaitBound("key")
	w.mustHide(r)
}

// A driver that repeats its secret in an error does not give it away.
func TestSecretInTheDriversError(t *testing.T) {
	w := newWorld(t, secretPair("provisioner-secret", "mine", "${pvc.namespace}"))
	w.createSecret(w.name, "mine")
	w.allowSecrets(w.name)
	w.driver.OnCreate(func(_ context.Context, request *csi.CreateVolumeRequest, _ func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		return nil, status.Error(codes.PermissionDenied, "cannot log in with "+request.GetSecrets()["password"])
	})
	r := w.start("-v=9")
	w.createClaim("data")
	w.awaitEvent("data", "ProvisioningFailed", "cannot log in with ***stripped***")
	w.mustHide(r)
}

// Secrets can be read where an administrator has bound the role, nowhere else.
func TestSecretsNeedABinding(t *testing.T) {
	w := newWorld(t, secretPair("provisioner-secret", "${pvc.name}", "${pvc.namespace}"))
	w.createSecret(w.name, "data")
	r := w.start()
	w.createClaim("data")
	w.awaitEvent("data", "ProvisioningFailed", "secrets \"data\" is forbidden")
	if calls := w.driver.Creates(); len(calls) != 0 {
		t.Fatalf("the driver was called without the secret: %v", calls)
	}
	w.allowSecrets(w.name)
	volume := w.awaitBound("data")
	w.deleteClaim("data")
	w.awaitVolumeGone(volume.Name)
	if got := w.driver.Creates()[0].GetSecrets()["password"]; got != password {
		t.Errorf("CreateVolume got password %q", got)
	}
	if got := w.driver.Deletes()[0].GetSecrets()["password"]; got != password {
		t.Errorf("DeleteVolume got password %q", got)
	}
	w.mustHide(r)
}
