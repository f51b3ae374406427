package plan

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func expandingClass(value string) map[string]string {
	return map[string]string{"subDir": value, "csi.storage.k8s.io/expand-parameters": "true"}
}

func labelled(claim *corev1.PersistentVolumeClaim) {
	claim.Labels = map[string]string{"app": "web", "empty": ""}
	claim.Annotations = map[string]string{"a/b": "blue", "path": "../x", "nested": "x/y", "token": "${pv.name}", "up": "..", "here": "."}
}

func TestExpandedParameters(t *testing.T) {
	for value, want := range map[string]string{
		"plain": "plain",
		"${pvc.namespace}/${pvc.name}/${pv.name}":            "team-a/data/pvc-1",
		"${pvc.labels['app']}-${pvc.annotations['a/b']}.dir": "web-blue.dir",
		"$ { } pays nothing":                                 "$ { } pays nothing",
	} {
		creation, err := NewCreation(testOptions(), testClaim(labelled), testClass(expandingClass(value)), "pvc-1")
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if got := creation.Request.Parameters["subDir"]; got != want || len(creation.Request.Parameters) != 1 {
			t.Errorf("%s became %v, want %s", value, creation.Request.Parameters, want)
		}
	}
	// Without the opt-in, templates are the driver's.
	creation, err := NewCreation(testOptions(), testClaim(labelled), testClass(map[string]string{"subDir": "${pvc.name}"}), "pvc-1")
	if err != nil || creation.Request.Parameters["subDir"] != "${pvc.name}" {
		t.Errorf("got %v, %v", creation, err)
	}
}

func TestExpandedParametersRefused(t *testing.T) {
	for value, says := range map[string]string{
		"${pvc.labels['absent']}":      `no label "absent"`,
		"${pvc.annotations['absent']}": `no annotation "absent"`,
		"${pvc.labels['empty']}":       "is empty",
		"${pvc.annotations['path']}":   `"../x"`,
		"${pvc.annotations['nested']}": `"x/y"`,
		"${pvc.annotations['up']}":     `".."`,
		"${pvc.annotations['here']}":   `"."`,
		"${pvc.annotations['token']}":  `"${pv.name}"`,
		"${pvc.metadata.name}":         "unknown token ${pvc.metadata.name}",
		"${pvc.name":                   "not closed",
	} {
		_, err := NewCreation(testOptions(), testClaim(labelled), testClass(expandingClass(value)), "pvc-1")
		if !errors.Is(err, ErrClass) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "subDir") {
			t.Errorf("%s: %v, want ErrClass that says %q", value, err, says)
		}
	}
	if _, err := ParseClass(map[string]string{expandKey: "yes"}); !errors.Is(err, ErrClass) {
		t.Errorf("ParseClass() = %v for a switch that is neither on nor off", err)
	}
}

// Whatever the author of a claim writes, a value has as many path separators as
// the class has, and no template that the class does not have.
func FuzzExpandParameter(f *testing.F) {
	f.Add("a/${pvc.annotations['k']}/b", "v")
	f.Add("${pvc.annotations['k']}${pv.name}", "${pv.name}")
	f.Add("${pvc.annotations['k']}", "../..")
	f.Add("${${pvc.annotations['k']}}", "\x00}")
	f.Fuzz(func(t *testing.T, template, value string) {
		subject := Subject{PVName: "pv", ClaimNamespace: "ns", ClaimName: "claim", Annotations: map[string]string{"k": value}}
		class := Class{Parameters: map[string]string{"p": template}, expand: true}
		got, err := class.expanded(subject)
		if err != nil {
			return
		}
		tokens := strings.Count(template, "${")
		if strings.Contains(got["p"], "${") && tokens == 0 {
			t.Errorf("%q with %q became %q", template, value, got["p"])
		}
		for _, special := range []string{"/", "\\", "$"} {
			if strings.Count(got["p"], special) > strings.Count(template, special) {
				t.Errorf("%q with %q became %q, which has more of %s", template, value, got["p"], special)
			}
		}
	})
}

// A reference is refused, or is a valid name in a namespace that the class or the
// claim's own namespace determines.
func FuzzSecretReference(f *testing.F) {
	f.Add("${pvc.annotations['k']}", "n", "v")
	f.Add("s", "${pvc.namespace}", "v")
	f.Add("s", "${pvc.annotations['k']}", "kube-system")
	f.Add("a${pv.name", "$", "..")
	f.Fuzz(func(t *testing.T, name, namespace, value string) {
		subject := Subject{PVName: "pv", ClaimNamespace: "ns", ClaimName: "claim", Annotations: map[string]string{"k": value}}
		class, err := ParseClass(map[string]string{ProvisionerSecret.nameKey(): name, ProvisionerSecret.namespaceKey(): namespace})
		if err != nil {
			return
		}
		ref, err := class.Secret(ProvisionerSecret, subject)
		if err != nil {
			return
		}
		if len(validation.IsDNS1123Subdomain(ref.Name)) > 0 || len(validation.IsDNS1123Label(ref.Namespace)) > 0 {
			t.Errorf("%q in %q became %s", name, namespace, ref)
		}
		want := strings.NewReplacer("${pv.name}", "pv", "${pvc.namespace}", "ns").Replace(namespace)
		if ref.Namespace != want {
			t.Errorf("namespace %q became %q", namespace, ref.Namespace)
		}
	})
}

// What differs from claim to claim is not known before there is one.
func TestAnnouncement(t *testing.T) {
	parameters := expandingClass("${pvc.namespace}")
	parameters["server"], parameters["csi.storage.k8s.io/fstype"] = "a", "nfs4"
	request, err := NewAnnouncement(testOptions(), testClass(parameters))
	if err != nil {
		t.Fatal(err)
	}
	if got := request.GetParameters(); len(got) != 1 || got["server"] != "a" {
		t.Errorf("parameters are %v", got)
	}
	mount := request.GetVolumeCapabilities()[0].GetMount()
	if mount.GetFsType() != "nfs4" || len(mount.GetMountFlags()) != 2 {
		t.Errorf("it would be mounted with %v", mount)
	}
	// Without the opt-in, templates are the driver's.
	delete(parameters, "csi.storage.k8s.io/expand-parameters")
	if request, err = NewAnnouncement(testOptions(), testClass(parameters)); err != nil || request.GetParameters()["subDir"] != "${pvc.namespace}" {
		t.Errorf("got %v, %v", request, err)
	}
	parameters["csi.storage.k8s.io/typo"] = "x"
	if _, err := NewAnnouncement(testOptions(), testClass(parameters)); WorthAnnouncingAgain(err) {
		t.Errorf("a class with a typo is worth another try: %v", err)
	}
}
