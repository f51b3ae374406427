package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	deployDir         = "../../deploy/kubernetes"
	baseNamespace     = "nfs-csi"
	controllerAccount = "nfs-csi-controller"
)

// account is who csi-provisioner is to the API server.
type account struct {
	namespace, name string
	// suffix is of the names of all that belongs to it, but for the namespace.
	suffix string
}

// allowed are the accounts made so far, by suffix.
var allowed sync.Map

// allowedBy is an account with the permissions of the base and of some components,
// in an installation of its own: what one feature is allowed must not hide what the
// base lacks, nor another feature.
func (w *world) allowedBy(components ...string) account {
	w.Helper()
	if len(components) == 0 {
		return account{namespace: baseNamespace, name: controllerAccount}
	}
	suffix := "-" + strings.Join(components, "-")
	a := account{namespace: baseNamespace + suffix, name: controllerAccount + suffix, suffix: suffix}
	once, _ := allowed.LoadOrStore(suffix, sync.OnceValue(func() error { return w.applyWith(a, components) }))
	if err := once.(func() error)(); err != nil {
		w.Fatal(err)
	}
	return a
}

func (w *world) applyWith(a account, components []string) error {
	base, err := filepath.Abs(deployDir)
	if err != nil {
		return err
	}
	dir := filepath.Join(w.dir, "with")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	// Kustomize takes no absolute paths.
	if base, err = filepath.Rel(dir, base); err != nil {
		return err
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: %s\nnameSuffix: %s\nresources: [%s]\ncomponents:\n",
		a.namespace, a.suffix, base)
	for _, component := range components {
		text += "  - " + filepath.Join(base, component) + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	return shared.Apply(w.Context(), dir)
}

// allowJournal permits for this driver what deploy/kubernetes permits for its own.
func (w *world) allowJournal() {
	w.Helper()
	if w.driverName == leaderDriver {
		return
	}
	roles := w.client.RbacV1().Roles(w.account.namespace)
	role, err := roles.Get(w.Context(), "nfs-csi-journal"+w.account.suffix, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	role.ObjectMeta = metav1.ObjectMeta{Name: "journal-" + w.name}
	for i := range role.Rules {
		if role.Rules[i].ResourceNames != nil {
			role.Rules[i].ResourceNames = []string{w.journal()}
		}
	}
	if _, err := roles.Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.bind(w.account.namespace, "Role", role.Name)
}

// forbidJournal takes back what allowJournal has permitted.
func (w *world) forbidJournal() {
	w.Helper()
	err := w.client.RbacV1().RoleBindings(w.account.namespace).Delete(w.Context(), "journal-"+w.name, metav1.DeleteOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.eventually("the journal must not be written", func() error { return w.mayWriteJournal(false) })
}

// mayWriteJournal asks the API server whether the account may.
func (w *world) mayWriteJournal(want bool) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + w.account.namespace + ":" + w.account.name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: w.account.namespace, Verb: "update", Version: "v1", Resource: "configmaps", Name: w.journal(),
		},
	}}
	answer, err := w.client.AuthorizationV1().SubjectAccessReviews().Create(w.Context(), review, metav1.CreateOptions{})
	if err == nil && answer.Status.Allowed != want {
		err = fmt.Errorf("it is allowed: %t, want %t", answer.Status.Allowed, want)
	}
	return err
}

// bind lets the account do what a role says, in a namespace.
func (w *world) bind(namespace, kind, role string) {
	w.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.account.namespace, Name: w.account.name}},
	}
	if _, err := w.client.RbacV1().RoleBindings(namespace).Create(w.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// journal is the name of the driver's ConfigMap.
func (w *world) journal() string {
	return "csi-provisioner-" + strings.ReplaceAll(w.driverName, ".", "-")
}
