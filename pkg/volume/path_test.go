package volume

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckSubDir(t *testing.T) {
	tests := map[string]bool{ // path -> allowed
		"pvc-1":                         true,
		"team a/pvc-1":                  true,
		"ünïcode/名前":                    true,
		"..a/b..":                       true,
		strings.Repeat("a", 255):        true,
		"":                              false,
		".":                             false,
		"..":                            false,
		"a/../b":                        false,
		"../a":                          false,
		"a/..":                          false,
		"a//b":                          false,
		"a/":                            false,
		"/a":                            false,
		`a\b`:                           false,
		`..\a`:                          false,
		"a#b":                           false,
		"a\x00b":                        false,
		"a\nb":                          false,
		"a\x7fb":                        false,
		"a\u0085b":                      false,
		"a\xffb":                        false,
		MetaDir:                         false,
		MetaDir + "/trash/x":            false,
		"a/" + MetaDir:                  false,
		"a/" + RecordFile:               false,
		strings.Repeat("a", 256):        false,
		strings.Repeat("aaaaaaa/", 200): false,
	}
	for path, allowed := range tests {
		err := CheckSubDir(path)
		if allowed && err != nil {
			t.Errorf("CheckSubDir(%q): %v", path, err)
		}
		if !allowed && !errors.Is(err, ErrInvalid) {
			t.Errorf("CheckSubDir(%q) = %v, want ErrInvalid", path, err)
		}
	}
}

func TestDirName(t *testing.T) {
	for _, name := range []string{"pvc-3f2c", "sanity-controller-create-A1B2", strings.Repeat("n", 128), "a b", "ü"} {
		if got, err := DirName(name); err != nil || got != name {
			t.Errorf("DirName(%q) = %q, %v, want the name itself", name, got, err)
		}
	}
	seen := map[string]string{}
	for _, name := range []string{"a/b", "..", ".", ".hidden", ".nfs0001", MetaDir, "a#b", `a\b`, "a\nb", "a\x00b", "/", "../../etc"} {
		got, err := DirName(name)
		if err != nil {
			t.Errorf("DirName(%q): %v", name, err)
			continue
		}
		if err := CheckSubDir(got); err != nil {
			t.Errorf("DirName(%q) = %q: %v", name, got, err)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q share the directory %q", name, other, got)
		}
		seen[got] = name
	}
	for _, name := range []string{"", strings.Repeat("n", 129)} {
		if _, err := DirName(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("DirName of %d bytes = %v, want ErrInvalid", len(name), err)
		}
	}
}

func TestParseExport(t *testing.T) {
	tests := []struct{ server, share, source string }{
		{"nfs.example.com", "/export/a", "nfs.example.com:/export/a/v"},
		{"nfs.example.com", "export/a/", "nfs.example.com:/export/a/v"},
		{"10.0.0.1", "/", "10.0.0.1:/v"},
		{"fd00::1", "/e", "[fd00::1]:/e/v"},
		{"[fd00::1]", "/e", "[fd00::1]:/e/v"},
		{"fe80::1%eth0", "/e", "[fe80::1%eth0]:/e/v"},
		{"h", "/with space,comma", "h:/with space,comma/v"},
	}
	for _, tt := range tests {
		e, err := ParseExport(tt.server, tt.share)
		if err != nil {
			t.Errorf("ParseExport(%q, %q): %v", tt.server, tt.share, err)
		} else if got := e.Source("v"); got != tt.source {
			t.Errorf("ParseExport(%q, %q).Source = %q, want %q", tt.server, tt.share, got, tt.source)
		}
	}
	bad := [][2]string{
		{"", "/e"}, {"h", ""}, {"h/x", "/e"}, {"h:1", "/e"}, {"-h", "/e"}, {"h..i", "/e"}, {".", "/e"}, {"..", "/e"},
		{"h#", "/e"}, {"h,addr=1.2.3.4", "/e"}, {"[fd00::1", "/e"}, {"[h]", "/e"}, {"fe80::1%a/b", "/e"}, {"h\n", "/e"},
		{"h", "/e/../f"}, {"h", "/e//f"}, {"h", `/e\f`}, {"h", "/e#f"}, {"h", "/" + MetaDir}, {"h", "/e\x00"},
		{strings.Repeat("h", 254), "/e"},
	}
	for _, b := range bad {
		if _, err := ParseExport(b[0], b[1]); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseExport(%q, %q) = %v, want ErrInvalid", b[0], b[1], err)
		}
	}
}
