package volume

import (
	"errors"
	"testing"
)

func TestSnapshotID(t *testing.T) {
	for text, want := range map[string]SnapshotID{
		"nfs.test#export#s#s#pvc-1": {Export{"nfs.test", "/export"}, "s", "pvc-1"},
		"fd00::1#a/b#s#s#ns/pvc":    {Export{"fd00::1", "/a/b"}, "s", "ns/pvc"},
		"nfs.test##s#s#pvc-1":       {Export{"nfs.test", "/"}, "s", "pvc-1"},
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
		"s#e#.nfs-csi#.nfs-csi#v": ErrInvalid, `s#e#a\b#a\b#v`: ErrInvalid, "s#e#a#a#v/": ErrInvalid,
	} {
		if _, err := ParseSnapshotID(text); !errors.Is(err, want) {
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
