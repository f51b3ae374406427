package chart_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nfs-csi/nfs-csi/test/chart"
)

// TestRefusedValues: a wrong or unknown value is refused with its name.
func TestRefusedValues(t *testing.T) {
	for _, tt := range []struct{ values, want string }{
		{"controler: {}", "additional properties 'controler' not allowed"},
		{"controller: {replica: 2}", "at '/controller': additional properties 'replica' not allowed"},
		{"controller: {replicas: two}", "at '/controller/replicas': got string, want integer"},
		{"driver: {directoryMode: 0755}", "at '/driver/directoryMode': got number, want string"},
		{"driver: {mountPermissions: \"0789\"}", "at '/driver/mountPermissions': '0789' does not match pattern"},
		{"driver: {mountPermissions: \"777\"}", "at '/driver/mountPermissions': '777' does not match pattern"},
		{"driver: {onDelete: keep}", "at '/driver/onDelete': value must be one of 'delete', 'retain', 'archive'"},
		{"driver: {name: NFS}", "at '/driver/name': 'NFS' does not match pattern"},
		{"driver: {mountOptions: \"nfsvers=4.1\"}", "at '/driver/mountOptions': got string, want array"},
		{"images: {nfsplugin: {digest: abc}}", "at '/images/nfsplugin/digest': 'abc' does not match pattern"},
		{"images: {csiResizer: {tag: \"\"}}", "at '/images/csiResizer/tag': minLength: got 0, want 1"},
		{"images: {pullPolicy: Sometimes}", "at '/images/pullPolicy': value must be one of"},
		{"kubeletDir: var/lib/kubelet", "at '/kubeletDir': 'var/lib/kubelet' does not match pattern"},
		{"log: {level: 11}", "at '/log/level': maximum: got 11, want 10"},
		{"node: {plugin: {port: 0}}", "at '/node/plugin/port': minimum: got 0, want 1"},
		{"node: {dnsPolicy: None}", "at '/node/dnsPolicy': value must be one of"},
		{"provisioner: {extraArgs: [leader-election]}", "at '/provisioner/extraArgs/0': 'leader-election' does not match pattern"},
		{"storageClasses: [{parameters: {}}]", "at '/storageClasses/0': missing property 'name'"},
		{"storageClasses: [{name: nfs, parameters: {mountPermissions: 0755}}]", "at '/storageClasses/0/parameters/mountPermissions': got number, want string"},
		{"storageClasses: [{name: nfs, parameters: {}, reclaimPolicy: Archive}]", "at '/storageClasses/0/reclaimPolicy': value must be one of"},
		{"volumeSnapshotClasses: [{name: nfs, driver: other}]", "at '/volumeSnapshotClasses/0': additional properties 'driver' not allowed"},

		{"fullnameOverride: " + strings.Repeat("n", 53), "at '/fullnameOverride'"},
		{"driver: {fsGroupPolicy: File}\nephemeral: {enabled: true, servers: [nas]}", "driver.fsGroupPolicy is File; with ephemeral.enabled it must be None"},
		{"ephemeral: {enabled: true}", "set ephemeral.servers or ephemeral.serversFromConfigMap"},
		{"ephemeral: {enabled: true, servers: [a], serversFromConfigMap: b}", "ephemeral.servers and ephemeral.serversFromConfigMap are set"},
		{"ephemeral: {servers: [a]}", "ephemeral.enabled is false"},
		{"cluster: {id: a, idFromConfigMap: b}", "cluster.id and cluster.idFromConfigMap are set"},
		{"controller: {bindAddress: 127.0.0.1}", "controller.bindAddress is 127.0.0.1; it needs controller.hostNetwork"},
		{"provisioner: {port: 9811}", "controller.plugin.port and provisioner.port are both 9811"},
		{"controller: {hostNetwork: true, plugin: {port: 9809}}", "controller.plugin.port is 9809, which is node.plugin.port, too"},
		{"snapshotter: {groupSnapshots: true}", "snapshotter.groupSnapshots needs snapshotter.enabled"},
		{"volumeGroupSnapshotClasses: [{name: nfs}]", "volumeGroupSnapshotClasses needs snapshotter.groupSnapshots"},
		{"volumeSnapshotClasses: [{name: nfs}]", "volumeSnapshotClasses needs snapshotter.enabled"},
		{"monitoring: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}", "they scrape the same endpoints"},
		{"serviceAccounts: {node: {create: false}}", "set serviceAccounts.node.name to an existing service account"},
	} {
		var values map[string]any
		if err := yaml.Unmarshal([]byte(tt.values), &values); err != nil {
			t.Fatal(err)
		}
		_, err := chart.Render(dir, sets()[0].release, values)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.values, err, tt.want)
		}
	}
}

func TestLongReleaseName(t *testing.T) {
	release := sets()[0].release
	release.Name = strings.Repeat("r", 50)
	if _, err := chart.Render(dir, release, nil); err == nil || !strings.Contains(err.Error(), "set fullnameOverride") {
		t.Errorf("error %v", err)
	}
	release.Name = strings.Repeat("r", 44)
	if _, err := chart.Render(dir, release, nil); err != nil {
		t.Error(err)
	}
}

// schema is what TestSchemaHasTheValues needs of a JSON schema.
type schema struct {
	Ref                  string             `json:"$ref"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties any                `json:"additionalProperties"`
	AllOf                []*schema          `json:"allOf"`
	Defs                 map[string]*schema `json:"$defs"`
}

// TestSchemaHasTheValues: values.schema.json and values.yaml have the same values, and none
// besides.
func TestSchemaHasTheValues(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(dir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var root schema
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	delete(root.Properties, "global")
	values, err := chart.Values(filepath.Join(dir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	checkSchema(t, root.Defs, "", &root, values)
}

func checkSchema(t *testing.T, defs map[string]*schema, path string, s *schema, value any) {
	t.Helper()
	for s.Ref != "" || len(s.AllOf) == 1 {
		ref := s.Ref
		if ref == "" {
			ref = s.AllOf[0].Ref
		}
		s = defs[strings.TrimPrefix(ref, "#/$defs/")]
	}
	object, ok := value.(map[string]any)
	if !ok || s.Properties == nil {
		return
	}
	if s.AdditionalProperties != false {
		t.Errorf("%s: the schema allows unknown values", path)
	}
	if path != "" && strings.HasSuffix(path, ".resources") {
		return // of Kubernetes, such as claims
	}
	want, got := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(object))
	if !slices.Equal(want, got) {
		t.Errorf("%s: the schema has %q, values.yaml %q", path, want, got)
	}
	for key, below := range object {
		if p := s.Properties[key]; p != nil {
			checkSchema(t, defs, path+"."+key, p, below)
		}
	}
}
