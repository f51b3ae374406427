package volume

import (
	"errors"
	"testing"
)

func TestParseID(t *testing.T) {
	exp := Export{Server: "nfs.example", Share: "/export/a"}
	tests := []struct {
		text string
		want ID
	}{
		{"nfs.example#export/a#pvc-1##delete", ID{exp, "pvc-1", "pvc-1", OnDeleteDelete}},
		{"nfs.example#export/a#ns/claim#pvc-1#retain", ID{exp, "ns/claim", "pvc-1", OnDeleteRetain}},
		{"nfs.example#export/a#pvc-1#pvc-1#archive", ID{exp, "pvc-1", "pvc-1", OnDeleteArchive}},
		{"nfs.example#export/a#pvc-1", ID{exp, "pvc-1", "pvc-1", ""}},
		{"nfs.example#export/a#pvc-1#", ID{exp, "pvc-1", "pvc-1", ""}},
		{"nfs.example#export/a#ns/claim#pvc-1", ID{exp, "ns/claim", "pvc-1", ""}},
		{"nfs.example/export/a/pvc-1", ID{exp, "pvc-1", "pvc-1", ""}},
		{"nfs.example##pvc-1##", ID{Export{"nfs.example", "/"}, "pvc-1", "pvc-1", ""}},
		{"nfs.example//pvc-1", ID{Export{"nfs.example", "/"}, "pvc-1", "pvc-1", ""}},
		{"fd00::1#e#pvc-1##delete", ID{Export{"fd00::1", "/e"}, "pvc-1", "pvc-1", OnDeleteDelete}},
	}
	for _, tt := range tests {
		got, err := ParseID(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseID(%q) = %+v, %v, want %+v", tt.text, got, err, tt.want)
		}
	}
}

func TestParseIDRefuses(t *testing.T) {
	for _, text := range []string{
		"s#e#", "s#e##", "s#e##n#delete", "#e#v", "s#e#..", "s#e#../v", "s#e#v/..", "s#e#a/../../b", "s#..#v", "s#../e#v",
		"s#e/../..#v", "s#/e#v", "s#e#/v", "s#e#/", `s#e#a\..\b`, "s#e#v\x00", "s#e\x00#v", "s#e#a//b", "s#e#.", "s#e#v\n",
		"s#e#.nfs-csi", "s#e#.nfs-csi/trash", "s#e/.nfs-csi#v", "s#e#v#..", "s#e#v#a/b", "s#e#v#n#purge", "s#e#v#n#delete#x",
		"s/e/..", "s/../v", "s/e/", "/e/v", "s x#e#v",
	} {
		if id, err := ParseID(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseID(%q) = %+v, %v, want ErrInvalid", text, id, err)
		}
	}
	for _, text := range []string{"", "fake-vol-id", "a#b", "a/b", "#", "/", "vol-0123456789abcdef0", "nas/share##", "nas/share#dir#"} {
		if id, err := ParseID(text); !errors.Is(err, ErrForeignID) {
			t.Errorf("ParseID(%q) = %+v, %v, want ErrForeignID", text, id, err)
		}
	}
}

func TestIDString(t *testing.T) {
	tests := map[string]ID{
		"s#export/a#pvc-1##delete":     {Export{"s", "/export/a"}, "pvc-1", "pvc-1", ""},
		"s##pvc-1##delete":             {Export{"s", "/"}, "pvc-1", "pvc-1", OnDeleteDelete},
		"s#e#ns/claim#pvc-1#retain":    {Export{"s", "/e"}, "ns/claim", "pvc-1", OnDeleteRetain},
		"fd00::1#e#pvc-1##archive":     {Export{"fd00::1", "/e"}, "pvc-1", "pvc-1", OnDeleteArchive},
		"s#with space#pvc-1##delete":   {Export{"s", "/with space"}, "pvc-1", "pvc-1", OnDeleteDelete},
		"s.example#a/b/c#d/e#f#delete": {Export{"s.example", "/a/b/c"}, "d/e", "f", OnDeleteDelete},
	}
	for want, id := range tests {
		if got := id.String(); got != want {
			t.Errorf("%+v is written %q, want %q", id, got, want)
		}
		back, err := ParseID(want)
		if id.OnDelete == "" {
			id.OnDelete = OnDeleteDelete
		}
		if err != nil || back != id {
			t.Errorf("ParseID(%q) = %+v, %v, want %+v", want, back, err, id)
		}
	}
}

// Every accepted ID must be safe and survive a round trip.
func FuzzParseID(f *testing.F) {
	for _, s := range []string{"s#e#v##delete", "s/e/v", "s##v", "s#e#../v", "fd00::1#e#a/b#n#retain", "a#b", "s#e#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrForeignID) {
				t.Fatalf("ParseID(%q): untyped error %v", s, err)
			}
			return
		}
		if err := CheckSubDir(id.SubDir); err != nil {
			t.Fatalf("ParseID(%q) let through %v", s, err)
		}
		if _, err := ParseExport(id.Export.Server, id.Export.Share); err != nil {
			t.Fatalf("ParseID(%q) let through %v", s, err)
		}
		if id.OnDelete == "" {
			id.OnDelete = OnDeleteDelete
		}
		if back, err := ParseID(id.String()); err != nil || back != id {
			t.Fatalf("%q reads as %+v, written %q, read again as %+v, %v", s, id, id.String(), back, err)
		}
	})
}
