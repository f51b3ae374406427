package integration

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Secrets can be read where an administrator has bound the role, nowhere else.
func TestSecretsNeedABinding(t *testing.T) {
	const password = "hunter22-hunter22"
	w := newWorld(t, func(class *storagev1.StorageClass) {
		class.Parameters["csi.storage.k8s.io/provisioner-secret-name"] = "${pvc.name}"
		class.Parameters["csi.storage.k8s.io/provisioner-secret-namespace"] = "${pvc.namespace}"
	})
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Data:       map[string][]byte{"password": []byte(password)},
	}
	if _, err := w.client.CoreV1().Secrets(w.name).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := w.start()
	w.createClaim("data")
	w.awaitEvent("data", "ProvisioningFailed", "secrets \"data\" is forbidden")
	if calls := w.driver.Creates(); len(calls) != 0 {
		t.Fatalf("the driver was called without the secret: %v", calls)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "provisioner"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nfs-csi-provisioner-secrets"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accountNamespace, Name: accountName}},
	}
	if _, err := w.client.RbacV1().RoleBindings(w.name).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	volume := w.awaitBound("data")
	w.deleteClaim("data")
	w.awaitVolumeGone(volume.Name)
	if got := w.driver.Creates()[0].GetSecrets()["password"]; got != password {
		t.Errorf("CreateVolume got password %q", got)
	}
	if got := w.driver.Deletes()[0].GetSecrets()["password"]; got != password {
		t.Errorf("DeleteVolume got password %q", got)
	}
	log, err := os.ReadFile(r.Log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "/csi.v1.Controller/CreateVolume") || strings.Contains(string(log), password) {
		t.Error("the log lacks the calls or has the secret")
	}
}
