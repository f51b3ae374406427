package plan

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestParseClass(t *testing.T) {
	tests := map[string]struct {
		parameters map[string]string
		driver     map[string]string
		fsType     string
	}{
		"nothing": {nil, map[string]string{}, ""},
		"driver's own": {
			map[string]string{"server": "a", "share": "/b"},
			map[string]string{"server": "a", "share": "/b"}, "",
		},
		"reserved are kept from the driver": {
			map[string]string{
				"server":                    "a",
				"csi.storage.k8s.io/fstype": "xfs",
				"csi.storage.k8s.io/provisioner-secret-name":      "s",
				"csi.storage.k8s.io/provisioner-secret-namespace": "n",
				"csi.storage.k8s.io/secret-name":                  "s",
				"csi.storage.k8s.io/secret-namespace":             "n",
			},
			map[string]string{"server": "a"}, "xfs",
		},
		"deprecated fstype reaches the driver": {
			map[string]string{"fsType": "ext4"},
			map[string]string{"fsType": "ext4"}, "ext4",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			class, err := ParseClass(test.parameters)
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(class.Parameters, test.driver) {
				t.Errorf("driver's parameters are %v, want %v", class.Parameters, test.driver)
			}
			if class.FSType != test.fsType {
				t.Errorf("file system type is %q, want %q", class.FSType, test.fsType)
			}
		})
	}
}

func TestParseClassRefuses(t *testing.T) {
	tests := map[string]struct {
		parameters map[string]string
		says       string
	}{
		"unknown reserved": {
			map[string]string{"csi.storage.k8s.io/provisoner-secret-name": "typo"}, "csi.storage.k8s.io/provisioner-secret-name",
		},
		"metadata keys are ours to set": {
			map[string]string{"csi.storage.k8s.io/pvc/name": "other"}, "csi.storage.k8s.io/pvc/name",
		},
		"two file systems": {
			map[string]string{"fstype": "xfs", "csi.storage.k8s.io/fstype": "xfs"}, "file system type",
		},
		"name without namespace": {
			map[string]string{"csi.storage.k8s.io/node-stage-secret-name": "s"}, "node-stage-secret-namespace",
		},
		"namespace without name": {
			map[string]string{"csi.storage.k8s.io/secret-namespace": "n"}, "csi.storage.k8s.io/secret-name",
		},
		"deprecated name without namespace": {
			map[string]string{"csiNodeStageSecretName": "s"}, "csiNodeStageSecretName and csiNodeStageSecretNamespace must be given together",
		},
		"deprecated and current": {
			map[string]string{
				"csiProvisionerSecretName": "s", "csiProvisionerSecretNamespace": "n",
				"csi.storage.k8s.io/provisioner-secret-name": "s", "csi.storage.k8s.io/provisioner-secret-namespace": "n",
			}, "keep csi.storage.k8s.io/provisioner-secret-name",
		},
		"empty name": {
			map[string]string{
				"csi.storage.k8s.io/node-publish-secret-name":      "",
				"csi.storage.k8s.io/node-publish-secret-namespace": "n",
			}, "neither empty",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseClass(test.parameters)
			if !errors.Is(err, ErrClass) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("ParseClass() = %v, want ErrClass that says %q", err, test.says)
			}
		})
	}
}

func secretClass(t *testing.T, purpose Purpose, name, namespace string) Class {
	t.Helper()
	class, err := ParseClass(map[string]string{purpose.nameKey(): name, purpose.namespaceKey(): namespace})
	if err != nil {
		t.Fatal(err)
	}
	return class
}

func testSubject() Subject {
	return Subject{
		PVName:         "pvc-1",
		ClaimNamespace: "team-a",
		ClaimName:      "data",
		Annotations:    map[string]string{"example.com/secret": "special", "evil": "../../x", "token": "${pv.name}", "empty": ""},
	}
}

func TestSecretTokens(t *testing.T) {
	tests := map[string]struct {
		name, namespace string
		want            SecretRef
	}{
		"plain":           {"s", "n", SecretRef{Name: "s", Namespace: "n"}},
		"volume":          {"${pv.name}", "n", SecretRef{Name: "pvc-1", Namespace: "n"}},
		"claim namespace": {"s", "${pvc.namespace}", SecretRef{Name: "s", Namespace: "team-a"}},
		"volume as space": {"s", "ns-${pv.name}", SecretRef{Name: "s", Namespace: "ns-pvc-1"}},
		"all in a name": {
			"${pvc.namespace}-${pvc.name}.${pv.name}.${pvc.annotations['example.com/secret']}", "n",
			SecretRef{Name: "team-a-data.pvc-1.special", Namespace: "n"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			class := secretClass(t, ProvisionerSecret, test.name, test.namespace)
			got, err := class.Secret(ProvisionerSecret, testSubject())
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("Secret() = %v, want %v", got, test.want)
			}
		})
	}
}

func TestSecretTokensRefused(t *testing.T) {
	tests := map[string]struct {
		name, namespace, says string
	}{
		"unknown token":             {"${pvc.uid}", "n", "${pvc.uid}"},
		"missing annotation":        {"${pvc.annotations['absent']}", "n", `no annotation "absent"`},
		"annotation makes no name":  {"${pvc.annotations['evil']}", "n", "not a valid secret name"},
		"empty annotation":          {"${pvc.annotations['empty']}", "n", "not a valid secret name"},
		"tokens expand only once":   {"${pvc.annotations['token']}", "n", "not a valid secret name"},
		"not closed":                {"a-${pv.name", "n", "not closed"},
		"bare dollar":               {"$pv.name", "n", "not a valid secret name"},
		"claim name as a namespace": {"s", "${pvc.name}", "unknown token ${pvc.name}"},
		"annotation as a namespace": {"s", "${pvc.annotations['example.com/secret']}", "unknown token"},
		"dotted namespace":          {"s", "a.b", "not a valid namespace"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			class := secretClass(t, NodePublishSecret, test.name, test.namespace)
			_, err := class.Secret(NodePublishSecret, testSubject())
			if !errors.Is(err, ErrClass) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Secret() = %v, want ErrClass that says %q", err, test.says)
			}
		})
	}
}

func TestDefaultSecret(t *testing.T) {
	class, err := ParseClass(map[string]string{
		"csi.storage.k8s.io/secret-name":                 "default",
		"csi.storage.k8s.io/secret-namespace":            "n",
		"csi.storage.k8s.io/node-stage-secret-name":      "stage",
		"csi.storage.k8s.io/node-stage-secret-namespace": "m",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, purpose := range purposes() {
		want := SecretRef{Name: "default", Namespace: "n"}
		if purpose == NodeStageSecret {
			want = SecretRef{Name: "stage", Namespace: "m"}
		}
		got, err := class.Secret(purpose, testSubject())
		if err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", purpose, got, err, want)
		}
	}
	if got, err := (Class{}).Secret(ProvisionerSecret, testSubject()); !got.IsZero() || err != nil {
		t.Errorf("a class without secrets gives %v, %v", got, err)
	}
}

func TestDeprecatedSecretKeys(t *testing.T) {
	stems := map[Purpose]string{
		ProvisionerSecret: "csiProvisionerSecret", ControllerPublishSecret: "csiControllerPublishSecret",
		NodeStageSecret: "csiNodeStageSecret", NodePublishSecret: "csiNodePublishSecret",
	}
	parameters := map[string]string{}
	for purpose, stem := range stems {
		parameters[stem+"Name"], parameters[stem+"Namespace"] = string(purpose)+"-${pv.name}", "n"
	}
	class, err := ParseClass(parameters)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(class.Parameters, parameters) {
		t.Errorf("driver's parameters are %v, want %v", class.Parameters, parameters)
	}
	for _, purpose := range purposes() {
		var want SecretRef
		if stems[purpose] != "" {
			want = SecretRef{Name: string(purpose) + "-pvc-1", Namespace: "n"}
		}
		if got, err := class.Secret(purpose, testSubject()); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", purpose, got, err, want)
		}
	}
}

func TestSecretIsNamedBy(t *testing.T) {
	tests := map[string]struct {
		parameters map[string]string
		want       string
	}{
		"its own pair": {
			map[string]string{
				"csi.storage.k8s.io/provisioner-secret-name": "s", "csi.storage.k8s.io/provisioner-secret-namespace": "n",
				"csi.storage.k8s.io/secret-name": "s", "csi.storage.k8s.io/secret-namespace": "n",
			},
			"n/s named by StorageClass parameters csi.storage.k8s.io/provisioner-secret-name and csi.storage.k8s.io/provisioner-secret-namespace",
		},
		"a deprecated pair": {
			map[string]string{"csiProvisionerSecretName": "s", "csiProvisionerSecretNamespace": "n"},
			"n/s named by StorageClass parameters csiProvisionerSecretName and csiProvisionerSecretNamespace",
		},
		"the pair for all": {
			map[string]string{"csi.storage.k8s.io/secret-name": "s", "csi.storage.k8s.io/secret-namespace": "n"},
			"n/s named by StorageClass parameters csi.storage.k8s.io/secret-name and csi.storage.k8s.io/secret-namespace",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			class, err := ParseClass(test.parameters)
			if err != nil {
				t.Fatal(err)
			}
			ref, err := class.Secret(ProvisionerSecret, Subject{})
			if err != nil {
				t.Fatal(err)
			}
			if got := ref.String() + " named by " + class.NamedBy(ProvisionerSecret); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
