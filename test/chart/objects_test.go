package chart_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// constraints are the fields of security.openshift.io/v1 SecurityContextConstraints, as its
// reference lists them.
type constraints struct {
	metav1.TypeMeta          `json:",inline"`
	metav1.ObjectMeta        `json:"metadata"`
	Priority                 *int32              `json:"priority"`
	AllowHostDirVolumePlugin bool                `json:"allowHostDirVolumePlugin"`
	AllowHostIPC             bool                `json:"allowHostIPC"`
	AllowHostNetwork         bool                `json:"allowHostNetwork"`
	AllowHostPID             bool                `json:"allowHostPID"`
	AllowHostPorts           bool                `json:"allowHostPorts"`
	AllowPrivilegeEscalation *bool               `json:"allowPrivilegeEscalation"`
	AllowPrivilegedContainer bool                `json:"allowPrivilegedContainer"`
	AllowedCapabilities      []corev1.Capability `json:"allowedCapabilities"`
	DefaultAddCapabilities   []corev1.Capability `json:"defaultAddCapabilities"`
	RequiredDropCapabilities []corev1.Capability `json:"requiredDropCapabilities"`
	ReadOnlyRootFilesystem   bool                `json:"readOnlyRootFilesystem"`
	RunAsUser                strategy            `json:"runAsUser"`
	SELinuxContext           strategy            `json:"seLinuxContext"`
	FSGroup                  strategy            `json:"fsGroup"`
	SupplementalGroups       strategy            `json:"supplementalGroups"`
	SeccompProfiles          []string            `json:"seccompProfiles"`
	Volumes                  []string            `json:"volumes"`
	Users                    []string            `json:"users"`
	Groups                   []string            `json:"groups"`
}

type strategy struct {
	Type string `json:"type"`
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme, apiextensionsv1.AddToScheme, snapshotv1.AddToScheme, groupsnapshotv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// TestObjectsAreOfTheirTypes: a misspelt field or a value of another type is an error.
func TestObjectsAreOfTheirTypes(t *testing.T) {
	decoder := serializer.NewCodecFactory(newScheme(t), serializer.EnableStrict).UniversalDeserializer()
	crds := sets()[0]
	crds.name, crds.files = "definitions", []string{"testdata/values/definitions.yaml"}
	for _, s := range append(sets(), crds) {
		t.Run(s.name, func(t *testing.T) {
			r := s.render(t)
			for _, manifest := range slices.Concat(r.Manifests, r.Tests) {
				if strings.Contains(manifest, "kind: SecurityContextConstraints") {
					if err := yaml.UnmarshalStrict([]byte(manifest), &constraints{}); err != nil {
						t.Errorf("%v in\n%s", err, manifest)
					}
					continue
				}
				if _, _, err := decoder.Decode([]byte(manifest), nil, nil); err != nil {
					t.Errorf("%v in\n%s", err, manifest)
				}
			}
		})
	}
}

// podSpecs are those of the workloads, by name.
func podSpecs(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.PodSpec {
	t.Helper()
	specs := map[string]corev1.PodSpec{}
	for _, o := range objects {
		switch o.GetKind() {
		case "Deployment":
			var d appsv1.Deployment
			convert(t, o, &d)
			specs[d.Name] = d.Spec.Template.Spec
		case "DaemonSet":
			var d appsv1.DaemonSet
			convert(t, o, &d)
			specs[d.Name] = d.Spec.Template.Spec
		}
	}
	if len(specs) < 2 {
		t.Fatalf("workloads are %v", specs)
	}
	return specs
}

func convert(t *testing.T, o *unstructured.Unstructured, into any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		t.Fatal(err)
	}
}

func TestContainersHaveMemoryLimits(t *testing.T) {
	for _, s := range sets() {
		for name, pod := range podSpecs(t, s.objects(t)) {
			for _, c := range pod.Containers {
				if c.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s: container %s of %s has no memory limit", s.name, c.Name, name)
				}
			}
		}
	}
}

// TestTwoReleasesShareNoObject: an object with the name of another release's would be
// refused by helm, and replaced by kubectl. Nor do they select each other's pods.
func TestTwoReleasesShareNoObject(t *testing.T) {
	all := sets()
	first := all[slices.IndexFunc(all, func(s set) bool { return s.name == "default" })]
	second := all[slices.IndexFunc(all, func(s set) bool { return s.name == "second" })]
	// In one namespace as well.
	beside := second
	beside.release.Namespace = first.release.Namespace
	for _, other := range []set{second, beside} {
		names := map[string]bool{}
		for _, o := range first.objects(t) {
			names[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = true
		}
		for _, o := range other.objects(t) {
			if id := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName(); names[id] {
				t.Errorf("both releases have %s", id)
			}
		}
	}
	selectors := map[string]bool{}
	for _, s := range []set{first, beside} {
		for _, o := range s.objects(t) {
			if labels, ok, _ := unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels"); ok {
				text := o.GetKind() + labels["app.kubernetes.io/name"] + "/" + labels["app.kubernetes.io/instance"] + "/" + labels["app.kubernetes.io/component"]
				if selectors[text] {
					t.Errorf("both releases select %s", text)
				}
				selectors[text] = true
			}
		}
	}
	if len(selectors) != 4 {
		t.Errorf("selectors are %v", selectors)
	}
}

// TestKeptOnUninstall: claims and snapshots refer to classes and definitions, which helm
// must not delete; everything else must go.
func TestKeptOnUninstall(t *testing.T) {
	kept := map[string]bool{
		"StorageClass": true, "VolumeSnapshotClass": true, "VolumeGroupSnapshotClass": true,
		"VolumeAttributesClass": true, "CustomResourceDefinition": true,
	}
	seen := map[string]bool{}
	crds := sets()[0]
	crds.files = []string{"testdata/values/definitions.yaml"}
	var objects []*unstructured.Unstructured
	for _, s := range append(sets(), crds) {
		objects = append(objects, s.objects(t)...)
	}
	for _, o := range objects {
		if keep := o.GetAnnotations()["helm.sh/resource-policy"] == "keep"; keep != kept[o.GetKind()] {
			t.Errorf("%s %s: kept on uninstall is %t", o.GetKind(), o.GetName(), keep)
		}
		seen[o.GetKind()] = true
	}
	for kind := range kept {
		if !seen[kind] {
			t.Errorf("no set of values renders a %s", kind)
		}
	}
}

// TestNamespaces: everything is in the namespace of the release, as kubectl needs it said.
func TestNamespaces(t *testing.T) {
	clusterWide := []string{
		"Namespace", "CSIDriver", "ClusterRole", "ClusterRoleBinding", "StorageClass", "VolumeAttributesClass", "VolumeSnapshotClass",
		"VolumeGroupSnapshotClass", "SecurityContextConstraints",
	}
	for _, s := range sets() {
		for _, o := range s.objects(t) {
			want := s.release.Namespace
			if slices.Contains(clusterWide, o.GetKind()) {
				want = ""
			}
			if o.GetKind() == "RoleBinding" && strings.HasSuffix(o.GetName(), "-provisioner-secrets") {
				continue // in the namespaces of the secrets
			}
			if o.GetNamespace() != want {
				t.Errorf("%s: %s %s is in namespace %q, want %q", s.name, o.GetKind(), o.GetName(), o.GetNamespace(), want)
			}
		}
	}
}

// TestFlagsExist: every flag that the chart sets on a program of this project is in its
// generated reference.
func TestFlagsExist(t *testing.T) {
	reference := map[string]string{}
	for _, program := range []string{"nfsplugin", "csi-provisioner"} {
		text, err := os.ReadFile("../../docs/flags-" + program + ".md")
		if err != nil {
			t.Fatal(err)
		}
		reference[program] = string(text)
	}
	for _, s := range sets() {
		for _, pod := range podSpecs(t, s.objects(t)) {
			for _, c := range pod.Containers {
				if reference[c.Name] == "" {
					continue
				}
				for _, arg := range c.Args {
					flag, _, _ := strings.Cut(arg, "=")
					if !strings.Contains(reference[c.Name], "`"+flag+"`") {
						t.Errorf("%s: %s has no flag %s", s.name, c.Name, flag)
					}
				}
			}
		}
	}
}
