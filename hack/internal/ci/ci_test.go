// Package ci tests what .github has for other programs: what actionlint does not check.
package ci

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func workflows(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("workflows %v, %v", files, err)
	}
	texts := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		texts[name] = read(t, ".github/workflows/"+name)
	}
	return texts
}

// A tag of an action can be moved, a commit cannot.
func TestActionsArePinned(t *testing.T) {
	uses := regexp.MustCompile(`(?m)uses: *(.*)$`)
	pinned := regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	versions := map[string]string{}
	for file, text := range workflows(t) {
		for _, match := range uses.FindAllStringSubmatch(text, -1) {
			used := match[1]
			if strings.HasPrefix(used, "./") {
				continue
			}
			if !pinned.MatchString(used) {
				t.Errorf("%s: %q is not pinned as ACTION@COMMIT # vX.Y.Z", file, used)
				continue
			}
			action, commit, _ := strings.Cut(used, "@")
			if other, ok := versions[action]; ok && other != commit {
				t.Errorf("%s: %s is used at %s and %s", file, action, commit, other)
			}
			versions[action] = commit
		}
	}
	if len(versions) < 3 {
		t.Fatalf("found only the actions %v", versions)
	}
}

// Images are reproducible with one version of Go, so workflows and Dockerfile have the same.
func TestVersionOfGo(t *testing.T) {
	base := regexp.MustCompile(`(?m)^FROM .*/golang:([0-9.]+)@sha256:[0-9a-f]{64} AS build$`).FindStringSubmatch(read(t, "Dockerfile"))
	if base == nil {
		t.Fatal("the Dockerfile's base image is not pinned as golang:VERSION@sha256:DIGEST")
	}
	for file, text := range workflows(t) {
		for _, match := range regexp.MustCompile(`go-version: *"(.*)"`).FindAllStringSubmatch(text, -1) {
			if match[1] != base[1] {
				t.Errorf("%s: Go %s, but %s in the Dockerfile", file, match[1], base[1])
			}
		}
		if setups, versions := strings.Count(text, "actions/setup-go@"), strings.Count(text, "go-version:"); setups != versions {
			t.Errorf("%s: %d of setup-go with %d versions", file, setups, versions)
		}
	}
}

// Dependabot has an entry for each module.
func TestDependabotHasEveryModule(t *testing.T) {
	var modules []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "bin", "_output", "testdata"}, entry.Name()) {
			return filepath.SkipDir
		}
		if entry.Name() == "go.mod" {
			dir, err := filepath.Rel(root, filepath.Dir(path))
			modules = append(modules, filepath.Clean("/"+dir))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, gomod, ok := strings.Cut(read(t, ".github/dependabot.yml"), "package-ecosystem: gomod\n")
	if !ok {
		t.Fatal("dependabot.yml has no entry for Go modules")
	}
	gomod, _, _ = strings.Cut(gomod, "- package-ecosystem:")
	var listed []string
	for _, match := range regexp.MustCompile(`(?m)^ +- (/.*)$`).FindAllStringSubmatch(gomod, -1) {
		listed = append(listed, match[1])
	}
	slices.Sort(modules)
	slices.Sort(listed)
	if diff := cmp.Diff(modules, listed); diff != "" {
		t.Errorf("modules and dependabot.yml differ (-modules +dependabot):\n%s", diff)
	}
}
