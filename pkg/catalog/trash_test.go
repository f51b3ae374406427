package catalog

import (
	"strings"
	"testing"
	"time"
)

func TestQuarantinedFrom(t *testing.T) {
	cat, _ := open(t)
	quarantine := func(subDir string) string {
		t.Helper()
		place, err := cat.Quarantine(DeletedKind, subDir)
		if err != nil {
			t.Fatal(err)
		}
		return place.Name
	}
	for _, subDir := range []string{"pvc-1", "team/a.b", "é %2F/x"} {
		if got, ok := QuarantinedFrom(quarantine(subDir)); !ok || got != subDir {
			t.Errorf("%q became %q, %v", subDir, got, ok)
		}
	}
	const name = DeletedKind + "0123456789abcdef-1700000000000000000-ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, other := range []string{quarantine(strings.Repeat("é", 100)), name + "...", name + ".%2e%2e", name + ".%zz", "kept-1-X.data", "x"} {
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
