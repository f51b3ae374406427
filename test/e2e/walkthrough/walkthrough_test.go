package walkthrough

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = "# Title\n\n```sh\nfalse\n```\n\n## Walk\n\n1. Write:\n\n" +
	"   ```yaml\n   # a.yaml\n   at: place\n   ```\n\n" +
	"   ```yaml\n   not: written\n   ```\n\n" +
	"   ```sh\n   cat a.yaml |\n     grep place\n\n   echo two \\\n     three\n   ```\n\n   It prints:\n\n" +
	"   ```\n   at: place\n   two three\n   ```\n\n" +
	"```sh\n# no heading\necho silent\n```\n\n## Next\n\n```sh\nexit 3\n```\n"

func steps(t *testing.T, p *Page, heading string) []Step {
	t.Helper()
	found, err := p.Section(heading)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSection(t *testing.T) {
	p := Parse(page)
	got := steps(t, p, "## Walk")
	want := []Step{
		{Line: 11, File: "a.yaml", Content: "# a.yaml\nat: place\n"},
		{Line: 20, Commands: []string{"cat a.yaml |\n  grep place", "echo two \\\n  three"}, Output: &Output{
			Text: "at: place\ntwo three\n", from: 30, until: 32, indent: "   ",
		}},
		{Line: 35, Commands: []string{"# no heading", "echo silent"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Output{})); diff != "" {
		t.Errorf("steps differ (-want +got):\n%s", diff)
	}
	if p.String() != page {
		t.Error("the page has changed")
	}
	for _, heading := range []string{"# Title", "## Walks"} {
		if s, err := Parse("# Title\n## Walk\n").Section(heading); err == nil {
			t.Errorf("section %q has %v", heading, s)
		}
	}
}

func TestDo(t *testing.T) {
	p := Parse(page)
	var transcript strings.Builder
	r := &Run{Dir: t.TempDir(), Replace: []string{"place", "10.0.0.1"}, Transcript: &transcript}
	walk := steps(t, p, "## Walk")
	for _, s := range walk[:2] {
		out, err := r.Do(t.Context(), s)
		if err != nil || s.Output != nil && !s.Output.Shows(out) {
			t.Errorf("line %d: %q, %v", s.Line, out, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(r.Dir, "a.yaml")); err != nil || string(b) != "# a.yaml\nat: 10.0.0.1\n" {
		t.Errorf("it has written %q, %v", b, err)
	}
	const want = "# a.yaml\nat: place\n\n$ cat a.yaml |\n  grep place\nat: place\n$ echo two \\\n  three\ntwo three\n\n"
	if diff := cmp.Diff(want, transcript.String()); diff != "" {
		t.Errorf("the transcript differs (-want +got):\n%s", diff)
	}
	if _, err := r.Do(t.Context(), steps(t, p, "## Next")[0]); err == nil {
		t.Error("a command that fails does not end the step")
	}
	p.Update(walk[1].Output, "one\n\nline\n")
	if got := p.String(); !strings.Contains(got, "prints:\n\n   ```\n   one\n\n   line\n   ```\n\n```sh\n# no heading") {
		t.Errorf("the page is now %q", got)
	}
}

// A file that another process writes later is waited for.
func TestDoWaits(t *testing.T) {
	p := Parse("# W\n```sh\n(sleep 0.5; echo late >file) >/dev/null 2>&1 &\nfind . -name file\n```\n```\n./file\n```\n")
	r := &Run{Dir: t.TempDir(), Patience: 20e9, Transcript: &strings.Builder{}}
	s := steps(t, p, "# W")[0]
	if out, err := r.Do(t.Context(), s); err != nil || !s.Output.Shows(out) {
		t.Errorf("%q, %v", out, err)
	}
}

func TestShows(t *testing.T) {
	for _, c := range []struct {
		page, run string
		want      bool
	}{
		{"a  b\n", "a  b \n", true},
		{"a b\n", "a c\n", false},
		{"a b\n", "a b\nc\n", false},
		{"data   4s\n", "data   1m20s\n", true},
		{"data   4s\n", "data   4x\n", false},
		{"4Gi\n", "5Gi\n", false},
		{"pvc-0b5e6f2a-1111-4222-8333-444455556666 x\n", "pvc-a0000000-1111-4222-8333-44445555ffff x\n", true},
		{"since 2026-01-02T03:04:05Z\n", "since 2027-01-02T03:04:05.123Z\n", true},
		{"rolled out\n", "Waiting for deployment to roll out\n\nrolled out\n", true},
		{"a ... c\n", "a b c\n", true},
		{"a\n...\nz\n", "a\nb\nc\nz\n", true},
		{"a\n...\nz\n", "a\nb\nc\n", false},
		{"", "", true},
		{"", "a\n", false},
	} {
		if got := (&Output{Text: c.page}).Shows(c.run); got != c.want {
			t.Errorf("%q shows %q: %v, want %v", c.page, c.run, got, c.want)
		}
	}
}
