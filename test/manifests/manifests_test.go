package manifests_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nfs-csi/nfs-csi/test/manifests"
)

const (
	base    = "../../deploy/kubernetes"
	example = "../../deploy/kubernetes/example"
	// With the opt-in components.
	ephemeral = "testdata/ephemeral"
	takeover  = "testdata/csi-driver-nfs"
	sidecars  = "testdata/sidecars"
	// With all that csi-provisioner can do besides.
	optional = "testdata/optional"
)

var update = flag.Bool("update", false, "write the golden files")

func TestGolden(t *testing.T) {
	for golden, dir := range map[string]string{
		"base.yaml":           base,
		"example.yaml":        example,
		"ephemeral.yaml":      ephemeral,
		"csi-driver-nfs.yaml": takeover,
		"sidecars.yaml":       sidecars,
		"optional.yaml":       optional,
	} {
		t.Run(golden, func(t *testing.T) {
			got, err := manifests.Render(dir)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", golden)
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
		})
	}
}

// decode finds an object and decodes it strictly: a misspelt field is an error.
func decode[T any](t *testing.T, kind, name string) T {
	t.Helper()
	return decodeOf[T](t, base, kind, name)
}

func decodeOf[T any](t *testing.T, dir, kind, name string) T {
	t.Helper()
	objects, err := manifests.Objects(dir)
	if err != nil {
		t.Fatal(err)
	}
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
	pod := decode[appsv1.Deployment](t, "Deployment", "nfs-csi-controller").Spec.Template.Spec
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
	pod := decode[appsv1.DaemonSet](t, "DaemonSet", "nfs-csi-node").Spec.Template.Spec
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
	pod := decodeOf[appsv1.Deployment](t, takeover, "Deployment", "nfs-csi-controller").Spec.Template.Spec
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
	for dir, driver := range map[string]string{base: "nfs-csi-internal", takeover: "nfs-csi-k8s-io"} {
		role := decodeOf[rbacv1.Role](t, dir, "Role", "nfs-csi-journal")
		named := 0
		for _, rule := range role.Rules {
			for _, name := range rule.ResourceNames {
				named++
				if !strings.HasPrefix(name, "csi-provisioner-"+driver) {
					t.Errorf("%s: %s is the journal of another driver than %s", dir, name, driver)
				}
			}
		}
		if named == 0 {
			t.Errorf("%s: the Role names no journal: %v", dir, role.Rules)
		}
	}
}

// TestTakeoverReadsSecrets: csi-driver-nfs's controller may read the secret that a class
// names in any namespace.
func TestTakeoverReadsSecrets(t *testing.T) {
	binding := decodeOf[rbacv1.ClusterRoleBinding](t, takeover, "ClusterRoleBinding", "nfs-csi-provisioner-secrets")
	if binding.RoleRef.Kind != "ClusterRole" || binding.RoleRef.Name != "nfs-csi-provisioner-secrets" {
		t.Errorf("it binds %v", binding.RoleRef)
	}
	if s := binding.Subjects; len(s) != 1 || s[0].Kind != rbacv1.ServiceAccountKind || s[0].Name != "nfs-csi-controller" || s[0].Namespace != "nfs-csi" {
		t.Errorf("it is bound to %v", s)
	}
	role := decodeOf[rbacv1.ClusterRole](t, takeover, "ClusterRole", "nfs-csi-provisioner-secrets")
	if r := role.Rules; len(r) != 1 || !slices.Equal(r[0].Resources, []string{"secrets"}) || !slices.Equal(r[0].Verbs, []string{"get"}) {
		t.Errorf("it allows %v", r)
	}
}

// TestControllerSharesItsSocket checks that both containers see the socket at the path
// in their flags.
func TestControllerSharesItsSocket(t *testing.T) {
	pod := decode[appsv1.Deployment](t, "Deployment", "nfs-csi-controller").Spec.Template.Spec
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
	for _, dir := range []string{base, ephemeral, takeover} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			checkNode(t, decodeOf[appsv1.DaemonSet](t, dir, "DaemonSet", "nfs-csi-node").Spec.Template.Spec)
		})
	}
}

func checkNode(t *testing.T, pod corev1.PodSpec) {
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
	if diff := cmp.Diff(map[string]bool{"/var/lib/kubelet/pods": true}, propagated); diff != "" {
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
	objects, err := manifests.Objects(base)
	if err != nil {
		t.Fatal(err)
	}
	const secretsRole = "nfs-csi-provisioner-secrets"
	for _, object := range objects {
		switch object.GetKind() {
		case "ClusterRole":
			role := decode[rbacv1.ClusterRole](t, "ClusterRole", object.GetName())
			checkRules(t, role.Name, role.Rules, role.Name == secretsRole)
		case "Role":
			role := decode[rbacv1.Role](t, "Role", object.GetName())
			checkRules(t, role.Name, role.Rules, false)
		case "ClusterRoleBinding", "RoleBinding":
			binding := decode[rbacv1.ClusterRoleBinding](t, object.GetKind(), object.GetName())
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
