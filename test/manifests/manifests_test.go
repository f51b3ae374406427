package manifests_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nfs-csi/nfs-csi/test/chart"
	"github.com/nfs-csi/nfs-csi/test/manifests"
)

const (
	base    = "../../deploy/kubernetes"
	example = "../../deploy/kubernetes/example"
	helm    = "../../deploy/helm/nfs-csi"
)

var update = flag.Bool("update", false, "write the golden files")

func TestExampleGolden(t *testing.T) {
	got, err := manifests.Render(example)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "example.yaml")
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("rendered manifests differ; `make generate` writes them (-want +got):\n%s", diff)
	}
}

// TestKubectlInstallsTheChart: what `kubectl apply -k` makes of each overlay, and of
// deploy/kubernetes itself, is what the chart renders.
func TestKubectlInstallsTheChart(t *testing.T) {
	rendered := map[string]string{base: filepath.Join(base, "default", "nfs-csi.yaml")}
	files, err := filepath.Glob(filepath.Join(base, "*", "nfs-csi.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("overlays %q, %v", files, err)
	}
	for _, file := range files {
		rendered[filepath.Dir(file)] = file
	}
	for dir, file := range rendered {
		stream, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := manifests.Decode(stream)
		if err != nil {
			t.Fatal(err)
		}
		got, err := manifests.Objects(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(byName(want), byName(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", dir, diff)
		}
	}
}

func byName(objects []*unstructured.Unstructured) map[string]any {
	named := map[string]any{}
	for _, o := range objects {
		named[o.GetKind()+" "+o.GetName()] = o.Object
	}
	return named
}

// compose renders the chart with its value files of these names, and with values, which
// have a colon.
func compose(t *testing.T, with ...string) []*unstructured.Unstructured {
	t.Helper()
	var files []string
	values := ""
	for _, w := range with {
		if strings.Contains(w, ":") {
			values += w + "\n"
		} else {
			files = append(files, filepath.Join(helm, "values", w+".yaml"))
		}
	}
	stream, err := chart.Manifests(helm, chart.Release{Name: "nfs-csi", Namespace: "nfs-csi"}, values, files...)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifests.Decode(stream)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// decode finds an object and decodes it strictly: a misspelt field is an error.
func decode[T any](t *testing.T, objects []*unstructured.Unstructured, kind, name string) T {
	t.Helper()
	var typed T
	for _, object := range objects {
		if object.GetKind() != kind || object.GetName() != name {
			continue
		}
		err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &typed, true)
		if err != nil {
			t.Fatalf("%s %s: %v", kind, name, err)
		}
		return typed
	}
	t.Fatalf("no %s is named %s", kind, name)
	return typed
}

func container(t *testing.T, pod corev1.PodSpec, name string) corev1.Container {
	t.Helper()
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no container is named %s", name)
	}
	return pod.Containers[i]
}

func TestControllerNeedsNothingOfTheHost(t *testing.T) {
	pod := decode[appsv1.Deployment](t, compose(t), "Deployment", "nfs-csi-controller").Spec.Template.Spec
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the controller shares a namespace with the host")
	}
	for _, v := range pod.Volumes {
		if v.EmptyDir == nil && v.Projected == nil {
			t.Errorf("volume %s is neither an emptyDir nor projected", v.Name)
		}
	}
	ports := map[int32]string{}
	for _, c := range pod.Containers {
		if c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged {
			t.Errorf("container %s is privileged", c.Name)
		}
		if !slices.Contains(c.SecurityContext.Capabilities.Drop, "ALL") {
			t.Errorf("container %s keeps the default capabilities", c.Name)
		}
		for _, m := range c.VolumeMounts {
			if m.MountPropagation != nil {
				t.Errorf("container %s: mounts of %s would reach the host", c.Name, m.MountPath)
			}
		}
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				t.Errorf("container %s takes host port %d", c.Name, p.HostPort)
			}
			if other, taken := ports[p.ContainerPort]; taken {
				t.Errorf("containers %s and %s both listen on %d", other, c.Name, p.ContainerPort)
			}
			ports[p.ContainerPort] = c.Name
		}
	}
	provisioner := container(t, pod, "csi-provisioner").SecurityContext
	if provisioner.RunAsNonRoot == nil || !*provisioner.RunAsNonRoot || len(provisioner.Capabilities.Add) > 0 {
		t.Error("csi-provisioner runs with more rights than it needs")
	}
}

// TestNothingListensOnEveryAddressOfTheHost: metrics have no authentication, so a pod on
// the host's network serves them on the node's own address only.
func TestNothingListensOnEveryAddressOfTheHost(t *testing.T) {
	pod := decode[appsv1.DaemonSet](t, compose(t), "DaemonSet", "nfs-csi-node").Spec.Template.Spec
	if !pod.HostNetwork {
		t.Fatal("the node plugin is not on the host's network")
	}
	plugin := container(t, pod, "nfsplugin")
	if !slices.Contains(plugin.Args, "--http-endpoint=[$(POD_IP)]:9809") {
		t.Errorf("args are %q", plugin.Args)
	}
	if !slices.ContainsFunc(plugin.Env, func(e corev1.EnvVar) bool {
		return e.Name == "POD_IP" && e.ValueFrom.FieldRef.FieldPath == "status.podIP"
	}) {
		t.Errorf("env is %v", plugin.Env)
	}
}

// TestTakeoverMountsBelowTmp: csi-driver-nfs's --working-mount-dir=/tmp needs a /tmp that can
// be written, and its directories have mode 0755.
func TestTakeoverMountsBelowTmp(t *testing.T) {
	pod := decode[appsv1.Deployment](t, compose(t, "csi-driver-nfs"), "Deployment", "nfs-csi-controller").Spec.Template.Spec
	plugin := container(t, pod, "nfsplugin")
	at := slices.IndexFunc(plugin.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/tmp" && !m.ReadOnly })
	if at < 0 {
		t.Fatalf("nfsplugin has no /tmp: %v", plugin.VolumeMounts)
	}
	if name := plugin.VolumeMounts[at].Name; !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name && v.EmptyDir != nil }) {
		t.Errorf("/tmp is %s, not an emptyDir", name)
	}
	if !slices.Contains(plugin.Args, "--directory-mode=0755") {
		t.Errorf("args are %q", plugin.Args)
	}
}

// TestTakeoverMayWriteItsJournal: the journal is named after the driver. One that may not
// be written is off, and a crash then leaves volumes behind that nothing deletes.
func TestTakeoverMayWriteItsJournal(t *testing.T) {
	for with, driver := range map[string]string{"snapshots": "nfs-csi-internal", "csi-driver-nfs": "nfs-csi-k8s-io"} {
		var shards []string
		for i := range 4 { // as many as csi-provisioner has
			shards = append(shards, fmt.Sprintf("csi-provisioner.%s.%d", driver, i))
		}
		want := []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "update"}, ResourceNames: shards},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "delete"}, ResourceNames: []string{"csi-provisioner-" + driver}},
		}
		if role := decode[rbacv1.Role](t, compose(t, with), "Role", "nfs-csi-journal"); !reflect.DeepEqual(role.Rules, want) {
			t.Errorf("%s: the Role has %v, want %v", with, role.Rules, want)
		}
	}
}

// TestTakeoverReadsSecrets: csi-driver-nfs's controller may read the secret that a class
// names in any namespace.
func TestTakeoverReadsSecrets(t *testing.T) {
	objects := compose(t, "csi-driver-nfs")
	binding := decode[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding", "nfs-csi-provisioner-secrets")
	if binding.RoleRef.Kind != "ClusterRole" || binding.RoleRef.Name != "nfs-csi-provisioner-secrets" {
		t.Errorf("it binds %v", binding.RoleRef)
	}
	if s := binding.Subjects; len(s) != 1 || s[0].Kind != rbacv1.ServiceAccountKind || s[0].Name != "nfs-csi-controller" || s[0].Namespace != "nfs-csi" {
		t.Errorf("it is bound to %v", s)
	}
	role := decode[rbacv1.ClusterRole](t, objects, "ClusterRole", "nfs-csi-provisioner-secrets")
	if r := role.Rules; len(r) != 1 || !slices.Equal(r[0].Resources, []string{"secrets"}) || !slices.Equal(r[0].Verbs, []string{"get"}) {
		t.Errorf("it allows %v", r)
	}
}

// TestControllerSharesItsSocket checks that both containers see the socket at the path
// in their flags.
func TestControllerSharesItsSocket(t *testing.T) {
	pod := decode[appsv1.Deployment](t, compose(t), "Deployment", "nfs-csi-controller").Spec.Template.Spec
	for name, arg := range map[string]string{
		"nfsplugin":       "--endpoint=unix:///run/csi/socket",
		"csi-provisioner": "--csi-address=/run/csi/socket",
	} {
		c := container(t, pod, name)
		if !slices.Contains(c.Args, arg) {
			t.Errorf("%s: args %q lack %s", name, c.Args, arg)
		}
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "socket" && m.MountPath == "/run/csi"
		})
		if !mounted {
			t.Errorf("%s does not mount the socket's directory", name)
		}
	}
}

func TestNodeMountsReachTheHost(t *testing.T) {
	for with, kubelet := range map[string]string{
		"snapshots": "/var/lib/kubelet", "ephemeral": "/var/lib/kubelet", "csi-driver-nfs": "/var/lib/kubelet",
		"kubeletDir: /var/lib/k0s/kubelet": "/var/lib/k0s/kubelet",
	} {
		t.Run(with, func(t *testing.T) {
			checkNode(t, kubelet, decode[appsv1.DaemonSet](t, compose(t, with), "DaemonSet", "nfs-csi-node").Spec.Template.Spec)
		})
	}
}

func checkNode(t *testing.T, kubelet string, pod corev1.PodSpec) {
	t.Helper()
	if !pod.HostNetwork {
		t.Error("mounts made in a pod's network die with the pod")
	}
	plugin := container(t, pod, "nfsplugin")
	propagated := map[string]bool{}
	for _, m := range plugin.VolumeMounts {
		if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional {
			propagated[m.MountPath] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{kubelet + "/pods": true}, propagated); diff != "" {
		t.Errorf("mounts that reach the host differ (-want +got):\n%s", diff)
	}
	// kubelet gets the host path of the socket that the plugin creates at a path in its
	// container.
	const registered = "--kubelet-registration-path="
	i := slices.IndexFunc(plugin.Args, func(a string) bool { return strings.HasPrefix(a, registered) })
	if i < 0 {
		t.Fatal("the node plugin does not register with kubelet")
	}
	onHost := strings.TrimPrefix(plugin.Args[i], registered)
	for _, v := range pod.Volumes {
		if !strings.HasPrefix(v.HostPath.Path, kubelet+"/") {
			t.Errorf("volume %s is %s, outside of kubelet's directory", v.Name, v.HostPath.Path)
		}
		if v.Name == "plugin" && v.HostPath.Path != filepath.Dir(onHost) {
			t.Errorf("kubelet looks in %s, the socket is in %s", filepath.Dir(onHost), v.HostPath.Path)
		}
	}
	if !slices.Contains(plugin.Args, "--endpoint=unix:///run/csi/"+filepath.Base(onHost)) {
		t.Errorf("args %q: the socket is not named %s", plugin.Args, filepath.Base(onHost))
	}
}

// TestAccess keeps the rules from growing unseen: no wildcards, and secrets are
// not readable unless an administrator binds the role that is for it.
func TestAccess(t *testing.T) {
	objects := compose(t)
	const secretsRole = "nfs-csi-provisioner-secrets"
	for _, object := range objects {
		switch object.GetKind() {
		case "ClusterRole":
			role := decode[rbacv1.ClusterRole](t, objects, "ClusterRole", object.GetName())
			checkRules(t, role.Name, role.Rules, role.Name == secretsRole)
		case "Role":
			role := decode[rbacv1.Role](t, objects, "Role", object.GetName())
			checkRules(t, role.Name, role.Rules, false)
		case "ClusterRoleBinding", "RoleBinding":
			binding := decode[rbacv1.ClusterRoleBinding](t, objects, object.GetKind(), object.GetName())
			if binding.RoleRef.Name == secretsRole {
				t.Errorf("%s gives every secret away", binding.Name)
			}
		}
	}
}

func checkRules(t *testing.T, role string, rules []rbacv1.PolicyRule, secrets bool) {
	t.Helper()
	for _, rule := range rules {
		if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), "*") {
			t.Errorf("%s has a wildcard: %v", role, rule)
		}
		if slices.Contains(rule.Resources, "secrets") && !secrets {
			t.Errorf("%s reads secrets", role)
		}
	}
}
