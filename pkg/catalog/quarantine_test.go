package catalog

import (
	"strings"
	"testing"
	"time"
)

func TestQuarantinedFrom(t *testing.T) {
	const name = quarantine + "0123456789abcdef-1700000000000000000-ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, subDir := range []string{"pvc-1", "team/a.b", "é %2F/x"} {
		if got, ok := QuarantinedFrom(QuarantineName(name, subDir)); !ok || got != subDir {
			t.Errorf("%q became %q, %v", subDir, got, ok)
		}
	}
	for _, other := range []string{QuarantineName(name, strings.Repeat("é", 100)), name + "...", name + ".%2e%2e", name + ".%zz", "kept-1-X.data", "x"} {
		if got, ok := QuarantinedFrom(other); ok {
			t.Errorf("%q is of %q", other, got)
		}
	}
}

func TestTrashName(t *testing.T) {
	now := time.Unix(1, 5)
	for subDir, want := range map[string]string{
		"pvc-1":                             "pvc-1.1000000005",
		"team/claim":                        "claim.1000000005",
		strings.Repeat("é", 127):            strings.Repeat("é", 100) + ".1000000005",
		"x" + strings.Repeat("é", 120) + "": "x" + strings.Repeat("é", 99) + ".1000000005",
	} {
		if got := trashName(subDir, now); got != want {
			t.Errorf("%s: %s, want %s", subDir, got, want)
		}
	}
}
