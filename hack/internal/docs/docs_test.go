package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nfs-csi/nfs-csi/hack/internal/docs"
)

const root = "../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// pages returns all Markdown files of the project.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", ".github/*.md", "docs/*.md", "proto/*.md", "hack/*.md", "test/*.md", "test/*/*.md", "deploy/examples/*.md", "deploy/helm/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < 4 {
		t.Fatalf("found only %q", all)
	}
	return all
}

// written returns the pages that are not generated from the flags.
func written(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(pages(t), func(page string) bool {
		return strings.HasPrefix(filepath.Base(page), "flags-")
	})
}

func TestCommandsExist(t *testing.T) {
	targets := docs.Targets(read(t, filepath.Join(root, "Makefile")))
	for _, page := range pages(t) {
		text := read(t, page)
		for _, c := range append(docs.Commands(text), docs.Inline(text)...) {
			checkCommand(t, page, c, targets)
		}
	}
}

func checkCommand(t *testing.T, page string, c docs.Command, targets map[string]bool) {
	t.Helper()
	switch c.Words[0] {
	case "make":
		for _, target := range c.Words[1:] {
			if !strings.Contains(target, "=") && !targets[target] {
				t.Errorf("%s:%d: make has no target %s", page, c.Line, target)
			}
		}
	case "bin/lab":
		checkFlags(t, page, c, "test/lab")
	case "bin/nfsplugin", "nfsplugin":
		checkFlags(t, page, c, "cmd/nfsplugin")
	case "bin/csi-provisioner", "csi-provisioner":
		checkFlags(t, page, c, "cmd/csi-provisioner")
	case "kubectl":
		for i, word := range c.Words[:len(c.Words)-1] {
			if (word == "-k" || word == "-f") && !docs.Shows(read(t, page), c.Words[i+1]) {
				checkExists(t, page, filepath.Join(root, c.Words[i+1]))
			}
		}
	}
}

// programs are the directories of the programs with documented flags.
var programs = []string{"cmd/nfsplugin", "cmd/csi-provisioner", "test/lab", "test/bench"}

// Every flag in a sentence or a table exists.
func TestFlagsExist(t *testing.T) {
	for _, page := range written(t) {
		for _, f := range docs.Flags(read(t, page)) {
			quoted := `"` + f.Name + `"`
			if strings.HasSuffix(f.Name, "-") { // of --retry-interval-*
				quoted = `"` + f.Name
			}
			known := func(dir string) bool { return sourceHas(t, dir, quoted) }
			if f.Name != "help" && !slices.ContainsFunc(programs, known) {
				t.Errorf("%s:%d: none of %q has a flag --%s", page, f.Line, programs, f.Name)
			}
		}
	}
}

// And vice versa: the docs name every flag and target.
func TestEverythingIsDocumented(t *testing.T) {
	var all strings.Builder
	for _, page := range written(t) {
		all.WriteString(read(t, page))
	}
	mustName := func(what string) {
		if !regexp.MustCompile(regexp.QuoteMeta(what) + `(?:[^a-z0-9-]|$)`).MatchString(all.String()) {
			t.Errorf("no page names %s", what)
		}
	}
	for _, dir := range programs {
		flags, err := docs.Defined(filepath.Join(root, dir))
		if err != nil || len(flags) < 5 {
			t.Fatalf("flags of %s: %q, %v", dir, flags, err)
		}
		for _, flag := range flags {
			mustName("--" + flag)
		}
	}
	targets := docs.Helped(read(t, filepath.Join(root, "Makefile")))
	if len(targets) < 10 {
		t.Fatalf("found only the targets %q", targets)
	}
	for _, target := range targets {
		mustName("make " + target)
	}
}

// checkFlags looks for each flag of a command as a string in the program's source.
func checkFlags(t *testing.T, page string, c docs.Command, source string) {
	t.Helper()
	flag := regexp.MustCompile(`^--([a-z0-9-]+)`)
	for _, word := range c.Words[1:] {
		if word == "--" {
			return // the rest is another command
		}
		match := flag.FindStringSubmatch(word)
		if match == nil || match[1] == "help" || match[1] == "version" {
			continue
		}
		if !sourceHas(t, source, `"`+match[1]+`"`) {
			t.Errorf("%s:%d: %s has no flag %s", page, c.Line, c.Words[0], word)
		}
	}
}

func sourceHas(t *testing.T, dir, text string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			found = found || strings.Contains(read(t, path), text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestLinksExist(t *testing.T) {
	for _, page := range pages(t) {
		for _, link := range docs.Links(read(t, page)) {
			checkExists(t, page, filepath.Join(filepath.Dir(page), link))
		}
	}
}

func checkExists(t *testing.T, page, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("%s: %v", page, err)
	}
}

func TestReading(t *testing.T) {
	const page = "Run `make a b` now.\n```sh\nmake c && kubectl get pods\n\n```\n```\nmake d\n```\n[x](y.md#z) [far](https://example.com/w)\n"
	commands := docs.Commands(page)
	want := []docs.Command{{Line: 3, Words: []string{"make", "c"}}, {Line: 3, Words: []string{"kubectl", "get", "pods"}}}
	if diff := cmp.Diff(want, commands); diff != "" {
		t.Errorf("commands differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]docs.Command{{Line: 1, Words: []string{"make", "a", "b"}}}, docs.Inline(page)); diff != "" {
		t.Errorf("inline commands differ (-want +got):\n%s", diff)
	}
	if shown := "```yaml\n# y.yaml\na: b\n```\n"; !docs.Shows(shown, "y.yaml") || docs.Shows(shown, "a.yaml") || docs.Shows(shown, ".") {
		t.Error("a file that a page shows is not told from one that it does not")
	}
	const flags = "The `--a-b=c` and --d.\n| `--e`, `--f_g` |\n`cp --h`\n```sh\nx --i\n```\n```yaml\nargs: [--j]\n```\nnot a--k\n---\n"
	wantFlags := []docs.Flag{{Line: 1, Name: "a-b"}, {Line: 1, Name: "d"}, {Line: 2, Name: "e"}, {Line: 2, Name: "f_g"}, {Line: 8, Name: "j"}}
	if diff := cmp.Diff(wantFlags, docs.Flags(flags)); diff != "" {
		t.Errorf("flags differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"y.md"}, docs.Links(page)); diff != "" {
		t.Errorf("links differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a"}, docs.Helped("a: c ## Do\nb: c\n")); diff != "" {
		t.Errorf("targets with help differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"a": true, "b": true}, docs.Targets(".PHONY: a b\na: c\n")); diff != "" {
		t.Errorf("targets differ (-want +got):\n%s", diff)
	}
}
