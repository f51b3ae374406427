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
	"sigs.k8s.io/yaml"

	"github.com/nfs-csi/nfs-csi/test/chart"
	"github.com/nfs-csi/nfs-csi/test/manifests"
)

const (
	deployDir = "../../deploy/kubernetes"
	chartDir  = "../../deploy/helm/nfs-csi"
	// baseRelease is what deployDir installs, in the namespace of this name.
	baseRelease = "nfs-csi"
)

// account is who csi-provisioner is to the API server.
type account struct {
	namespace, name string
	// release is the start of the names of all that belongs to it.
	release string
}

func accountOf(release string) account {
	return account{namespace: release, name: release + "-controller", release: release}
}

// features are the values of the chart that allow csi-provisioner more.
func features() map[string]string {
	return map[string]string{
		"attach":   "rbac: {attach: true}",
		"capacity": "capacity: {enabled: true}",
		"topology": "rbac: {topology: true}",
	}
}

// allowed are the accounts made so far, by release.
var allowed sync.Map

// allowedBy is an account with the permissions of the default installation and of some
// features, in a release of its own: what one feature is allowed must not hide what the
// default lacks, nor another feature.
func (w *world) allowedBy(with ...string) account {
	w.Helper()
	a := accountOf(strings.Join(append([]string{baseRelease}, with...), "-"))
	if len(with) == 0 {
		return a
	}
	once, _ := allowed.LoadOrStore(a.release, sync.OnceValue(func() error { return w.applyWith(a, with) }))
	if err := once.(func() error)(); err != nil {
		w.Fatal(err)
	}
	return a
}

func (w *world) applyWith(a account, with []string) error {
	var values []string
	for _, feature := range with {
		values = append(values, features()[feature])
	}
	stream, err := chart.Manifests(chartDir, chart.Release{Name: a.release, Namespace: a.namespace}, strings.Join(values, "\n"))
	if err != nil {
		return err
	}
	objects, err := manifests.Decode(stream)
	if err != nil {
		return err
	}
	var manifests []byte
	for _, o := range objects {
		if o.GetKind() == "CSIDriver" {
			continue // has the name of the base's
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		manifests = append(append(manifests, "---\n"...), text...)
	}
	dir := filepath.Join(w.dir, "with")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for file, text := range map[string]string{"manifests.yaml": string(manifests), "kustomization.yaml": "resources: [manifests.yaml]\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return shared.Apply(w.Context(), dir)
}

// allowJournal permits for this driver what deploy/kubernetes permits for its own, which
// is in the names of the ConfigMaps.
func (w *world) allowJournal() {
	w.Helper()
	if w.driverName == leaderDriver {
		return
	}
	roles := w.client.RbacV1().Roles(w.account.namespace)
	role, err := roles.Get(w.Context(), w.account.release+"-journal", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	role.ObjectMeta = metav1.ObjectMeta{Name: "journal-" + w.name}
	for _, rule := range role.Rules {
		for i, name := range rule.ResourceNames {
			rule.ResourceNames[i] = strings.Replace(name, dashed(leaderDriver), dashed(w.driverName), 1)
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
			Namespace: w.account.namespace, Verb: "update", Version: "v1", Resource: "configmaps", Name: w.journal() + ".0",
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

// journal is the name of the driver's ConfigMaps, before the number of each.
func (w *world) journal() string { return "csi-provisioner." + dashed(w.driverName) }

func dashed(driver string) string { return strings.ReplaceAll(driver, ".", "-") }
