package volume

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"strings"
	"testing"
)

func class(more map[string]string) map[string]string {
	in := map[string]string{"server": "s", "share": "/e"}
	maps.Copy(in, more)
	return in
}

func TestClass(t *testing.T) {
	p, err := ParseParams(class(map[string]string{
		"SubDir": "${.PVC.name}", "ONDELETE": "Retain", "mountpermissions": "02770", "UID": "1000", "gid": "0",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if p.SubDir != "${.PVC.name}" || p.OnDelete != OnDeleteRetain || p.Mode != 0o2770 || *p.UID != 1000 || *p.GID != 0 {
		t.Errorf("read %+v", p)
	}
	want := class(map[string]string{"subDir": "${.PVC.name}", "onDelete": "retain", "mode": "2770", "uid": "1000", "gid": "0"})
	if !maps.Equal(p.Shape(), want) {
		t.Errorf("shape %v, want %v", p.Shape(), want)
	}
	same, err := ParseParams(class(map[string]string{"subDir": "", "onDelete": "", "mountPermissions": "0", "mode": "", "uid": ""}))
	if err != nil || !maps.Equal(same.Shape(), class(nil)) {
		t.Errorf("empty values shape it to %v, %v", same.Shape(), err)
	}
	if p, err = ParseParams(class(map[string]string{"pathPattern": "a/b", "mode": "777", "mountPermissions": "0777"})); err != nil || p.SubDir != "a/b" || p.Mode != 0o777 {
		t.Errorf("read %+v, %v", p, err)
	}
}

// Which directories the volumes of a class may use: all parameters unset, and all set.
func TestClassDirectories(t *testing.T) {
	p, err := ParseParams(class(map[string]string{"adopt": "", "reuse": "", "shared": ""}))
	if err != nil || p.NoAdopt || p.Reuse || p.Shared {
		t.Errorf("nothing said: %+v, %v", p, err)
	}
	p, err = ParseParams(class(map[string]string{"Adopt": "false", "REUSE": "claim", "shared": "false", "subDir": "${.PVC.namespace}/${.PVC.name}"}))
	if err != nil || !p.NoAdopt || !p.Reuse || p.Shared {
		t.Errorf("read %+v, %v", p, err)
	}
	p, err = ParseParams(class(map[string]string{"adopt": "true", "Shared": "true", "subDir": "${.PVC.namespace}/data", "onDelete": "retain"}))
	if err != nil || p.NoAdopt || !p.Shared || p.Shape()["shared"] != "true" {
		t.Errorf("read %+v, %v", p, err)
	}
}

func TestClassPolicy(t *testing.T) {
	for _, tt := range []struct {
		in   map[string]string
		want OnDelete
	}{
		{nil, ""},
		{map[string]string{"archiveOnDelete": "true"}, OnDeleteArchive},
		{map[string]string{"archiveOnDelete": "false"}, OnDeleteDelete},
		{map[string]string{"archiveOnDelete": "true", "onDelete": "delete"}, OnDeleteDelete},
		{map[string]string{"archiveOnDelete": "true", "onDelete": "retain"}, OnDeleteRetain},
		{map[string]string{"archiveOnDelete": "false", "onDelete": "archive"}, OnDeleteArchive},
	} {
		if p, err := ParseParams(class(tt.in)); err != nil || p.OnDelete != tt.want {
			t.Errorf("%v: %q, %v, want %q", tt.in, p.OnDelete, err, tt.want)
		}
	}
}

func TestClassRefuses(t *testing.T) {
	for _, tt := range []struct {
		in   map[string]string
		says string
	}{
		{map[string]string{"onDelete": "keep"}, "must be one of delete, retain, archive"},
		{map[string]string{"archiveOnDelete": "maybe"}, "neither true nor false"},
		{map[string]string{"subDir": "a", "pathPattern": "a"}, "are the same, give one"},
		{map[string]string{"subDir": "/"}, "the export itself"},
		{map[string]string{"mountPermissions": "0888"}, `mountPermissions: invalid: mode "0888"`},
		{map[string]string{"mode": "10000"}, "octal"},
		{map[string]string{"mode": "-1"}, "octal"},
		{map[string]string{"mode": "0700", "mountPermissions": "0777"}, "contradict"},
		{map[string]string{"uid": "root"}, `uid: invalid: "root"`},
		{map[string]string{"gid": "4294967295"}, "gid"},
		{map[string]string{"gid": "-1"}, "gid"},
		{map[string]string{"adopt": "never"}, `adopt "never" is neither true nor false`},
		{map[string]string{"reuse": "always", "subDir": "a"}, `reuse "always", known is claim`},
		{map[string]string{"shared": "yes"}, `shared "yes" is neither true nor false`},
		{map[string]string{"shared": "true"}, `shared: "true" needs a subDir that several claims have in common`},
		{map[string]string{"shared": "true", "subDir": "${pv.metadata.name}"}, "in common"},
		{map[string]string{"shared": "true", "subDir": "a", "reuse": "claim"}, "reuse: claim contradict"},
		{map[string]string{"shared": "true", "subDir": "a", "onDelete": "delete"}, "onDelete: delete contradict"},
		{map[string]string{"shared": "true", "subDir": "a", "archiveOnDelete": "true"}, "onDelete: archive contradict"},
		{map[string]string{"reuse": "claim"}, "reuse: claim needs a subDir with the names of the claim"},
		{map[string]string{"reuse": "claim", "subDir": "${.PVC.name}-${pv.metadata.name}"}, "with the names of the claim"},
		{map[string]string{"mountOptions": "hard"}, `unknown parameter "mountoptions", must be one of server, share, subDir, pathPattern, onDelete, archiveOnDelete, mountPermissions, uid, gid, mode, adopt, reuse, shared, csi.storage.k8s.io/pvc/name`},
	} {
		if _, err := ParseParams(class(tt.in)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: %v, want ErrInvalid saying %q", tt.in, err, tt.says)
		}
	}
}

func TestParseMutable(t *testing.T) {
	m, err := ParseMutable(map[string]string{"OnDelete": "archive", "mountPermissions": "0750"})
	if want := (Mutable{OnDeleteArchive, 0o750}); err != nil || m != want {
		t.Errorf("read %+v, %v, want %+v", m, err, want)
	}
	for _, in := range []map[string]string{{"server": "s"}, {"uid": "1"}, {"onDelete": "x"}, {"mountPermissions": "9"}, {"a": "b", "A": "c"}} {
		if _, err := ParseMutable(in); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v, want ErrInvalid", in, err)
		}
	}
}

func TestMode(t *testing.T) {
	b, err := json.Marshal(Mode(0o2750))
	if err != nil || string(b) != `"2750"` {
		t.Errorf("written %s, %v", b, err)
	}
	var m Mode
	if err := json.Unmarshal(b, &m); err != nil || m != 0o2750 || m.Plain() || m.FileMode() != 0o750|fs.ModeSetgid {
		t.Errorf("read %s, %v", m, err)
	}
	if !Mode(0o777).Plain() || Mode(0o1777).FileMode() != 0o777|fs.ModeSticky || Mode(0o4000).FileMode() != fs.ModeSetuid {
		t.Error("bits are mixed up")
	}
}
