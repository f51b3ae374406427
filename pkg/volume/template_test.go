package volume

import (
	"errors"
	"strings"
	"testing"
)

func claim() map[string]string {
	return map[string]string{KeyPVCName: "data", KeyPVCNamespace: "team", KeyPVName: "pvc-1"}
}

func TestExpandSubDir(t *testing.T) {
	for template, want := range map[string]string{
		"${pvc.metadata.namespace}/${pvc.metadata.name}": "team/data",
		"${.PVC.namespace}-${.PVC.name}":                 "team-data",
		"/volumes/${pv.metadata.name}/":                  "volumes/pvc-1",
		"fixed/$x {y}":                                   "fixed/$x {y}",
		"${.PVC.name}${.PVC.name}":                       "datadata",
	} {
		if got, err := ExpandSubDir(template, claim()); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", template, got, err, want)
		}
	}
}

func TestExpandSubDirRefuses(t *testing.T) {
	for template, says := range map[string]string{
		"":                                    "the export itself",
		"//":                                  "the export itself",
		"a//b":                                "empty path component",
		"../${.PVC.name}":                     `".."`,
		"${.PVC.name}/..":                     `".."`,
		".nfs-csi/${.PVC.name}":               "reserved",
		"${pvc.metadata.uid}":                 "unknown ${pvc.metadata.uid}, must be one of ${pvc.metadata.name}, ",
		"${.PVC.labels.app}":                  "${.PVC.labels.app}: a CSI driver does not get labels",
		"a/${.PVC.annotations.nfs.io/path}/b": "${.PVC.annotations.nfs.io/path}: a CSI driver does not get",
		"${.PVC.name":                         "without }",
		"${}":                                 "unknown ${}",
		"${pvc.metadata.name}/" + "\x00":      "control",
		"${.PVC.name}#x":                      "'#'",
		strings.Repeat("${.PVC.name}/", 300):  "at most",
		"${.PVC.name}" + strings.Repeat("x", 255): "at most",
	} {
		if got, err := ExpandSubDir(template, claim()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %q, %v, want ErrInvalid saying %q", template, got, err, says)
		}
	}
}

// Values from a claim's author or a broken provisioner stay within one component.
func TestExpandSubDirHostileValues(t *testing.T) {
	for _, value := range []string{"", ".", "..", "a/b", "../../etc", `a\b`, "a#b", "a\nb", "\x00", ".nfs-csi", "\xff", strings.Repeat("x", 256)} {
		m := claim()
		m[KeyPVCName] = value
		got, err := ExpandSubDir("x/${.PVC.name}", m)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "${.PVC.name}") {
			t.Errorf("%q: %q, %v, want ErrInvalid naming the token", value, got, err)
		}
	}
	if _, err := ExpandSubDir("${.PVC.name}", nil); err == nil || !strings.Contains(err.Error(), "--extra-create-metadata") {
		t.Errorf("no metadata: %v", err)
	}
}

func FuzzExpandSubDir(f *testing.F) {
	for _, template := range []string{"${.PVC.namespace}/${.PVC.name}", "a${pvc.metadata.name}b", "/${pv.metadata.name}/", "${", "..", ".${.PVC.name}"} {
		f.Add(template, "team", "data")
		f.Add(template, "..", ".")
		f.Add(template, "${.PVC.name}", "a/b")
	}
	f.Fuzz(func(t *testing.T, template, namespace, name string) {
		got, err := ExpandSubDir(template, map[string]string{KeyPVCNamespace: namespace, KeyPVCName: name, KeyPVName: "pv"})
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%q: %v", template, err)
			}
			return
		}
		if err := CheckSubDir(got); err != nil {
			t.Fatalf("%q became %q: %v", template, got, err)
		}
		if strings.Count(got, "/") != strings.Count(outsideTokens(template), "/") {
			t.Fatalf("%q with %q and %q became %q: slashes that are not the class's", template, namespace, name, got)
		}
	})
}

// outsideTokens is the template without its leading and trailing slashes and its tokens.
func outsideTokens(template string) string {
	var out strings.Builder
	for rest := strings.Trim(template, "/"); ; {
		text, after, found := strings.Cut(rest, "${")
		out.WriteString(text)
		if !found {
			return out.String()
		}
		_, rest, _ = strings.Cut(after, "}")
	}
}
