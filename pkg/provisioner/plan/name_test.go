package plan

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestName(t *testing.T) {
	const uid = types.UID("0b6f4e1c-6a3e-4f5e-9a52-1d2c3b4a5f60")
	tests := map[string]struct {
		prefix string
		length int
		want   string
	}{
		"default":       {"pvc", WholeUID, "pvc-0b6f4e1c-6a3e-4f5e-9a52-1d2c3b4a5f60"},
		"other prefix":  {"nfs", WholeUID, "nfs-0b6f4e1c-6a3e-4f5e-9a52-1d2c3b4a5f60"},
		"short":         {"pvc", 10, "pvc-0b6f4e1c6a"},
		"all hex":       {"pvc", 32, "pvc-0b6f4e1c6a3e4f5e9a521d2c3b4a5f60"},
		"dotted prefix": {"a.b", 1, "a.b-0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			naming, err := NewNaming(test.prefix, test.length)
			if err != nil {
				t.Fatal(err)
			}
			if got := naming.Name(uid); got != test.want {
				t.Errorf("Name() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestNameOfAShortUID(t *testing.T) {
	naming, err := NewNaming("pvc", 32)
	if err != nil {
		t.Fatal(err)
	}
	if got := naming.Name("abc"); got != "pvc-abc" {
		t.Errorf("Name() = %q", got)
	}
}

func TestNewNamingRefuses(t *testing.T) {
	tests := map[string]struct {
		prefix string
		length int
	}{
		"zero":          {"pvc", 0},
		"below -1":      {"pvc", -2},
		"too long":      {"pvc", 33},
		"upper case":    {"PVC", WholeUID},
		"empty":         {"", WholeUID},
		"slash":         {"a/b", WholeUID},
		"long prefix":   {strings.Repeat("a", 250), WholeUID},
		"leading dash":  {"-a", WholeUID},
		"parent folder": {"..", WholeUID},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := NewNaming(test.prefix, test.length); err == nil {
				t.Errorf("NewNaming(%q, %d) accepted", test.prefix, test.length)
			}
		})
	}
}
