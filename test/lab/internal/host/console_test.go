package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func console(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "console.log")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTail(t *testing.T) {
	numbered := func(from, to int) (lines []string) {
		for i := from; i <= to; i++ {
			lines = append(lines, fmt.Sprint("line ", i))
		}
		return lines
	}
	for _, c := range []struct {
		what, content string
		want          []string
	}{
		{"few lines", "a\r\nb\n\n", []string{"a", "b"}},
		{"many lines", strings.Join(numbered(1, 50), "\n"), numbered(21, 50)},
		{"a panic before them", "Kernel panic - not syncing: why\n" + strings.Join(numbered(1, 50), "\n"),
			append([]string{"Kernel panic - not syncing: why", "..."}, numbered(23, 50)...)},
		{"a panic among them", strings.Join(numbered(1, 20), "\n") + "\nKernel panic\n", append(numbered(1, 20), "Kernel panic")},
		{"what a terminal would act on", "\x1b[2Jgone\x00 and \xff\tback", []string{"?[2Jgone? and ?\tback"}},
	} {
		if got, err := tail(console(t, c.content)); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v, want %q", c.what, got, err, c.want)
		}
	}
}

func TestTailReadsOnlyTheEnd(t *testing.T) {
	path := console(t, "")
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("\nthe end\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	lines, err := tail(path)
	if err != nil || len(lines) != 2 || lines[1] != "the end" || len(lines[0]) > tailBytes {
		t.Errorf("got %d lines, %v", len(lines), err)
	}
}
