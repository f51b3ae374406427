package host

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

const (
	tailLines = 30
	tailBytes = 64 << 10 // no more of a console is read, however long it is
)

// consolePath is where a guest's kernel and init write their messages.
func consolePath(scratch string) string { return filepath.Join(scratch, "logs", "console.log") }

// showConsole prints the end of a guest's console, and where the whole of it is.
func showConsole(w io.Writer, path string) {
	lines, err := tail(path)
	if err != nil {
		fmt.Fprintf(w, "lab: the guest's console cannot be shown: %v\n", err)
		return
	}
	fmt.Fprintf(w, "lab: the last lines of the guest's console (%s):\n", path)
	for _, line := range lines {
		fmt.Fprintf(w, "  | %s\n", line)
	}
}

// tail returns the last lines of a file, without what a terminal would act on.
func tail(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-tailBytes)
	data, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimRight(string(bytes.ToValidUTF8(data, []byte("?"))), "\r\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.Map(printable, strings.TrimRight(line, "\r"))
	}
	return lastLines(lines), nil
}

// lastLines keeps the last lines and, of those before, the one that says why the
// kernel panicked: a stack trace follows it.
func lastLines(lines []string) []string {
	last := lines[max(0, len(lines)-tailLines):]
	before := lines[:len(lines)-len(last)]
	for _, line := range slices.Backward(before) {
		if strings.Contains(line, "Kernel panic") {
			return append([]string{line, "..."}, last[2:]...)
		}
	}
	return last
}

func printable(r rune) rune {
	if unicode.IsPrint(r) || r == '\t' {
		return r
	}
	return '?'
}
