package volume

import (
	"errors"
	"strings"
	"testing"
)

func TestSnapshotID(t *testing.T) {
	for text, want := range map[string]SnapshotID{
		"nfs.test#export#s#s#pvc-1": {Export: Export{"nfs.test", "/export"}, Name: "s", Source: "pvc-1"},
		"fd00::1#a/b#s#s#ns/pvc":    {Export: Export{"fd00::1", "/a/b"}, Name: "s", Source: "ns/pvc"},
		"nfs.test##s#s#pvc-1":       {Export: Export{"nfs.test", "/"}, Name: "s", Source: "pvc-1"},

		"nfs.test#export#g#2#ns/pvc#group": {Export: Export{"nfs.test", "/export"}, Name: "2", Source: "ns/pvc", Group: "g"},
	} {
		got, err := ParseSnapshotID(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]error{
		"": ErrForeignID, "x": ErrForeignID, "a#b#c#d": ErrForeignID, "a#b#c#c#d#e": ErrForeignID,
		"s#e#..#..#v": ErrInvalid, "s#e#a#b#v": ErrInvalid, "s#e#a#a#../v": ErrInvalid, "s#e#a#a#": ErrInvalid,
		"s#/e#a#a#v": ErrInvalid, "s#../e#a#a#v": ErrInvalid, "#e#a#a#v": ErrInvalid, "s#e###v": ErrInvalid,
		"s#e#g###group": ErrInvalid, "s#e#..#1#v#group": ErrInvalid, "s#e#g#..#v#group": ErrInvalid,
		"s#e#g#1##group": ErrInvalid, "s#/e#g#1#v#group": ErrInvalid, "s#e#g#1#v#group#": ErrForeignID,
		"s#e#.nfs-csi#.nfs-csi#v": ErrInvalid, `s#e#a\b#a\b#v`: ErrInvalid, "s#e#a#a#v/": ErrInvalid,
	} {
		if _, err := ParseSnapshotID(text); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

func TestGroupID(t *testing.T) {
	id := GroupID{Export: Export{"fd00::1", "/a/b"}, Name: "g"}
	const text = "fd00::1#a/b#g###group"
	if got, err := ParseGroupID(text); err != nil || got != id || got.String() != text {
		t.Errorf("%+v, %v", got, err)
	}
	if of := (SnapshotID{Export: id.Export, Name: "1", Source: "v", Group: "g"}).GroupID(); of == nil || *of != id {
		t.Errorf("the member's group is %v", of)
	}
	if of := (SnapshotID{Export: id.Export, Name: "s", Source: "v"}).GroupID(); of != nil {
		t.Errorf("the group of a lone snapshot is %v", of)
	}
	for text, want := range map[string]error{
		"": ErrForeignID, "x": ErrForeignID, "s#e#g#g#v": ErrForeignID, "s#e#g": ErrForeignID, "s#e#g###": ErrForeignID,
		"s#e#g#1#v#group": ErrInvalid, "s#e####group": ErrInvalid, "s#e#..###group": ErrInvalid, "s#e#a/b###group": ErrInvalid,
		"s#/e#g###group": ErrInvalid, "#e#g###group": ErrInvalid, "s#../e#g###group": ErrInvalid, "s#e#.nfs-csi###group": ErrInvalid,
	} {
		if _, err := ParseGroupID(text); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

func TestSnapshotParams(t *testing.T) {
	p, err := ParseSnapshotParams(map[string]string{"Server": "s", "SHARE": "x/", "mountOptions": "vers=3", "csi.storage.k8s.io/volumesnapshot/name": "n"})
	if err != nil || p.Export == nil || *p.Export != (Export{"s", "/x"}) || p.MountOptions != "vers=3" {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := ParseSnapshotParams(nil); err != nil || p.Export != nil {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []map[string]string{{"server": "s"}, {"share": "/x"}, {"shar": "/x"}, {"server": "s", "share": "/x/.."}, {"server": "a", "Server": "b"}} {
		if _, err := ParseSnapshotParams(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestGroupParams(t *testing.T) {
	for text, want := range map[string]bool{"": false, "refuse": false, "allow": true} {
		p, err := ParseGroupParams(map[string]string{"server": "s", "share": "/x", "Writes": text})
		if err != nil || p.AllowWrites != want || p.Export == nil {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
	for _, bad := range []map[string]string{{"writes": "yes"}, {"write": "allow"}, {"server": "s"}, {"writes": "allow", "Writes": "allow"}} {
		if _, err := ParseGroupParams(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	_, err := ParseGroupParams(map[string]string{"write": "allow"})
	if want := `unknown parameter "write", must be one of server, share, mountOptions, writes`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func FuzzParseSnapshotID(f *testing.F) {
	for _, s := range []string{"s#e#n#n#v", "s##n#n#a/b", "s#e#..#..#v", "s#e#g#1#v#group", "s#e#g#../1#v#group", "#####"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseSnapshotID(s)
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrForeignID) {
				t.Fatalf("ParseSnapshotID(%q): untyped error %v", s, err)
			}
			return
		}
		if err := errors.Join(CheckComponent(id.Name), CheckSubDir(id.Source)); err != nil {
			t.Fatalf("ParseSnapshotID(%q) let through %v", s, err)
		}
		if id.Group != "" && CheckComponent(id.Group) != nil {
			t.Fatalf("ParseSnapshotID(%q) let through the group %q", s, id.Group)
		}
		if back, err := ParseSnapshotID(id.String()); err != nil || back != id {
			t.Fatalf("%q reads as %+v, written %q, read again as %+v, %v", s, id, id.String(), back, err)
		}
	})
}
