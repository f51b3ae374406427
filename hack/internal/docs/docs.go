// Package docs parses the project's Markdown, for tests that compare it with the code.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// Command is one line of a shell block.
type Command struct {
	Line  int
	Words []string
}

// Commands returns the command lines of the ```sh blocks, split at && as well.
func Commands(markdown string) []Command {
	var commands []Command
	inside := false
	number := 0
	for line := range strings.Lines(markdown) {
		number++
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inside = !inside && line == "```sh"
			continue
		}
		if !inside {
			continue
		}
		for part := range strings.SplitSeq(line, "&&") {
			if words := strings.Fields(part); len(words) > 0 {
				commands = append(commands, Command{Line: number, Words: words})
			}
		}
	}
	return commands
}

// Inline returns the command lines between single backquotes.
func Inline(markdown string) []Command {
	var commands []Command
	code := regexp.MustCompile("`([^`]+)`")
	number := 0
	for line := range strings.Lines(markdown) {
		number++
		for _, match := range code.FindAllStringSubmatch(line, -1) {
			commands = append(commands, Command{Line: number, Words: strings.Fields(match[1])})
		}
	}
	return commands
}

// Shows tells whether a page has the content of a file: a ```yaml block whose first line is a
// comment with its name.
func Shows(markdown, file string) bool {
	return regexp.MustCompile("(?m)^ *```yaml\n *# " + regexp.QuoteMeta(file) + "$").MatchString(markdown)
}

// Flag is a flag in a sentence, a table or a block other than ```sh.
type Flag struct {
	Line int
	Name string
}

// Flags returns the flags outside of ```sh blocks, and of inline commands that start with
// the name of a program.
func Flags(markdown string) []Flag {
	var flags []Flag
	code := regexp.MustCompile("`[^`]*`")
	noCommand := func(code string) string {
		if strings.HasPrefix(code, "`-") {
			return code
		}
		return " "
	}
	flag := regexp.MustCompile("(?:^|[\\s`([|>{])--([a-z][a-z0-9_-]*)")
	shell, number := false, 0
	for line := range strings.Lines(markdown) {
		number++
		if text := strings.TrimSpace(line); strings.HasPrefix(text, "```") {
			shell = text == "```sh"
			continue
		}
		if shell {
			continue
		}
		for _, match := range flag.FindAllStringSubmatch(code.ReplaceAllStringFunc(line, noCommand), -1) {
			flags = append(flags, Flag{Line: number, Name: match[1]})
		}
	}
	return flags
}

// Links returns the targets of links within the site.
func Links(markdown string) []string {
	var links []string
	link := regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	for _, match := range link.FindAllStringSubmatch(markdown, -1) {
		if !strings.Contains(match[1], "://") {
			links = append(links, match[1])
		}
	}
	return links
}

// Defined returns the names of the flags that the Go files of a directory tree define by
// a method of a flag set, such as StringVar(&c.Endpoint, "endpoint", ...).
func Defined(dir string) ([]string, error) {
	var names []string
	inspect := func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 3 {
			return
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !strings.HasSuffix(strings.TrimSuffix(method.Sel.Name, "P"), "Var") {
			return
		}
		if name, ok := call.Args[1].(*ast.BasicLit); ok && name.Kind == token.STRING {
			names = append(names, strings.Trim(name.Value, `"`))
		}
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			for n := range ast.Preorder(file) {
				inspect(n)
			}
		}
		return err
	})
	return names, err
}

// Helped returns the targets of a Makefile that `make help` lists.
func Helped(makefile string) []string {
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):.*## `).FindAllStringSubmatch(makefile, -1) {
		names = append(names, match[1])
	}
	return names
}

// Targets returns the names of a Makefile's phony targets.
func Targets(makefile string) map[string]bool {
	targets := map[string]bool{}
	for line := range strings.Lines(makefile) {
		if names, ok := strings.CutPrefix(line, ".PHONY:"); ok {
			for _, name := range strings.Fields(names) {
				targets[name] = true
			}
		}
	}
	return targets
}
