package volume

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestParseParams(t *testing.T) {
	p, err := ParseParams(map[string]string{
		"Server": "nfs.example", "SHARE": "export/a/",
		KeyPVCName: "claim", KeyPVCNamespace: "ns", "csi.storage.k8s.io/PV/name": "pvc-1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Export{"nfs.example", "/export/a"}); p.Export != want {
		t.Errorf("export %v, want %v", p.Export, want)
	}
	if want := map[string]string{KeyPVCName: "claim", KeyPVCNamespace: "ns", KeyPVName: "pvc-1"}; !maps.Equal(p.Metadata, want) {
		t.Errorf("metadata %v, want %v", p.Metadata, want)
	}
	if want := map[string]string{"server": "nfs.example", "share": "/export/a"}; !maps.Equal(p.Shape(), want) {
		t.Errorf("shape %v, want %v", p.Shape(), want)
	}
}

func TestParseParamsRefuses(t *testing.T) {
	tests := []struct {
		in   map[string]string
		says string
	}{
		{nil, "server is empty"},
		{map[string]string{"server": "s"}, "share is empty"},
		{map[string]string{"server": "s", "share": "/e", "sharee": "/f"}, `"sharee", must be one of server, share`},
		{map[string]string{"server": "s", "share": "/e", "Share": "/f"}, "more than once"},
		{map[string]string{"server": "s", "share": "/e/../f"}, ".."},
		{map[string]string{"server": "s,t", "share": "/e"}, "neither a host name"},
	}
	for _, tt := range tests {
		_, err := ParseParams(tt.in)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("ParseParams(%v) = %v, want ErrInvalid saying %q", tt.in, err, tt.says)
		}
	}
}

func TestParseAttributes(t *testing.T) {
	a, err := ParseAttributes(map[string]string{
		"server": "s", "share": "/", "subdir": "/a/b/", "MountOptions": "hard,nconnect=4",
		"storage.kubernetes.io/csiProvisionerIdentity": "x", "mountPermissions": "2770",
	})
	if want := (Attributes{Export: Export{"s", "/"}, SubDir: "a/b", MountOptions: "hard,nconnect=4", Mode: 0o2770}); err != nil || a != want {
		t.Errorf("got %+v, %v, want %+v", a, err, want)
	}
	if a, err := ParseAttributes(map[string]string{"server": "s", "share": "/e"}); err != nil || a.SubDir != "" {
		t.Errorf("a whole export: %+v, %v", a, err)
	}
	back, err := ParseAttributes(Attributes{Export: Export{"fd00::1", "/e"}, SubDir: "v"}.Context(nil))
	if want := (Attributes{Export: Export{"fd00::1", "/e"}, SubDir: "v"}); err != nil || back != want {
		t.Errorf("its own context: %+v, %v, want %+v", back, err, want)
	}
	for sub, want := range map[string]string{
		"${pvc.metadata.namespace}/${pvc.metadata.name}": "team/claim", "x-${.PVC.name}": "x-claim",
		"${pv.metadata.name}/${other}": "${pv.metadata.name}/${other}",
	} {
		a, err := ParseAttributes(map[string]string{
			"server": "s", "share": "/e", "subDir": sub, "csi.storage.k8s.io/pvc/name": "claim", "csi.storage.k8s.io/pvc/namespace": "team",
		})
		if err != nil || a.SubDir != want {
			t.Errorf("subDir %q of a claim: %q, %v, want %q", sub, a.SubDir, err, want)
		}
	}
	for _, value := range []string{"..", "a/b", ".nfs-csi"} {
		_, err := ParseAttributes(map[string]string{"server": "s", "share": "/e", "subDir": "${pvc.metadata.name}", "csi.storage.k8s.io/pvc/name": value})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("a claim named %q: %v, want ErrInvalid", value, err)
		}
	}
	for _, sub := range []string{"..", "../v", "a/../../b", `a\b`, "a//b", ".nfs-csi/trash", "${pvc.metadata.name}\n"} {
		if _, err := ParseAttributes(map[string]string{"server": "s", "share": "/e", "subDir": sub}); !errors.Is(err, ErrInvalid) {
			t.Errorf("subDir %q: %v, want ErrInvalid", sub, err)
		}
	}
}

// The node mounts what the controller made, whatever the class is like.
func TestContext(t *testing.T) {
	export := Export{"s", "/e"}
	with := func(pairs ...string) map[string]string {
		m := map[string]string{"server": "s", "share": "/e"}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	for name, tt := range map[string]struct {
		subDir      string
		class, want map[string]string
	}{
		"no class":   {"v", nil, with("subdir", "v")},
		"no subDir":  {"v", with("onDelete", "retain"), with("onDelete", "retain", "subdir", "v")},
		"template":   {"ns/c", with("SubDir", "${pvc.metadata.namespace}/c", KeyPVCNamespace, "ns"), with("SubDir", "ns/c", KeyPVCNamespace, "ns")},
		"pattern":    {"ns/c", with("pathPattern", "${.PVC.namespace}/c"), with("subdir", "ns/c")},
		"upper case": {"v", map[string]string{"SERVER": "s", "Share": "/e/"}, map[string]string{"SERVER": "s", "Share": "/e/", "subdir": "v"}},
		"mode":       {"v", with("mountPermissions", "0750", "mode", "0750"), with("mode", "0750", "subdir", "v")},
		"literal":    {"${pvc.metadata.name}", with(KeyPVCName, "c"), with("subdir", "${pvc.metadata.name}")},
	} {
		want := Attributes{Export: export, SubDir: tt.subDir}
		got := want.Context(tt.class)
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		if back, err := ParseAttributes(got); err != nil || back != want {
			t.Errorf("%s: read as %+v, %v, want %+v", name, back, err, want)
		}
	}
}
